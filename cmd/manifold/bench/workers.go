package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
)

func workersCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "workers", "Let one worker process project, and then several", workers)
	command.Long = `Let one worker process project, and then several, where the database is not the limit: each save of documents is made to
take longer by --save-delay, which nobody's processor has to work for, as a database far away would.

A new shared projection catches up with the logs of all tenants, first with one process of the role worker, then with
--processes of them; the limit is what the one did, so that the share is how many times as much they do. Then one is killed,
and the time is measured until the others have folded an event more of some tenants.`
	command.Flags().IntVar(&f.events, "events", 100_000, "events of all tenants together")
	command.Flags().IntVar(&f.documents, "documents", 10_000, "documents of all tenants together")
	command.Flags().IntVar(&f.tenants, "tenants", 400, "tenants, which share the events evenly")
	command.Flags().IntVar(&f.members, "processes", 2, "processes")
	command.Flags().DurationVar(&f.saveDelay, "save-delay", 50*time.Millisecond, "how much longer each save takes")
	command.Flags().StringVar(&f.role, "child", "", "")
	command.Flags().MarkHidden("child")
	return command
}

// roleWorker is a worker process of `bench workers`.
const roleWorker = "worker"

func workers(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
	if f.role == roleWorker {
		return Result{}, workerChild(ctx, f)
	}
	if f.members < 2 || f.tenants < 1 || f.events < f.tenants {
		return Result{}, errors.New("--processes must be at least 2, and there must be an event for each tenant")
	}
	db, err := openDatabase(ctx, f.databaseURL, progress)
	if err != nil {
		return Result{}, err
	}
	s := &service{db: db, close: db.close, role: config.RoleWeb, quiet: true}
	defer func() { err = errors.Join(err, s.close()) }()
	tenants, err := db.makeTenants(ctx, f.tenants)
	if err == nil {
		err = db.preloadAll(ctx, tenants, f.events, f.documents, progress)
	}
	if err == nil {
		err = execute(ctx, db.super, "checkpoint")
	}
	if err == nil {
		err = s.start(ctx, nil, progress, nil)
	}
	if err != nil {
		return Result{}, err
	}
	operator, err := dial(s.url, s.operator)
	if err != nil {
		return Result{}, err
	}
	defer operator.close()
	var all []*worker
	defer func() {
		for _, w := range all {
			w.end()
		}
	}()
	measure := func(processes int) (load, error) {
		for len(all) < processes {
			w, err := s.startWorker(f)
			if err != nil {
				return load{}, err
			}
			all = append(all, w)
		}
		if err := operator.awaitMembers(ctx, processes); err != nil {
			return load{}, err
		}
		fmt.Fprintf(progress, "projecting, with %d worker processes ...\n", processes)
		start := time.Now()
		if err := s.catchUp(ctx, &flags{events: f.events, tenants: 2}, operator); err != nil {
			return load{}, err
		}
		return load{events: int64(f.events), took: time.Since(start)}, nil
	}
	one, err := measure(1)
	if err == nil {
		err = s.drop(ctx, f, operator, ordersPath)
	}
	if err != nil {
		return Result{}, err
	}
	several, err := measure(f.members)
	if err != nil {
		return Result{}, err
	}
	fmt.Fprintln(progress, "killing one ...")
	killed := time.Now()
	if err := all[0].kill(); err != nil {
		return Result{}, err
	}
	some := min(f.tenants, takeOver)
	if err := s.appendToSome(ctx, some); err != nil {
		return Result{}, err
	}
	if err := s.awaitCheckpoints(ctx, f.events+some); err != nil {
		return Result{}, err
	}
	takenOver := time.Since(killed)
	result := Result{Name: fmt.Sprintf("workers --processes %d --tenants %d --save-delay %s", f.members, f.tenants, f.saveDelay), Clients: 1}
	result.take(several)
	result.hold("one process", one.perSecond())
	result.tell(takenOver.Seconds(), "s", "from a kill until the others have folded an event more of %d tenants", some)
	result.SyncedCommits, err = synced(ctx, db.super)
	return result, err
}

// takeOver is how many tenants get another event after a process was killed. The number is small, since each save
// takes time.
const takeOver = 40

// appendToSome appends one more event to the logs of some tenants.
func (s *service) appendToSome(ctx context.Context, tenants int) error {
	some := fmt.Sprintf("(select tenant_id from manifold.logs order by tenant_id limit %d)", tenants)
	return execute(ctx, s.db.super,
		`insert into manifold.events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, created_at)
			select tenant_id, head + 1, gen_random_uuid(), 'order-more', 1, 'ItemAdded', '{"sku": "SKU-1", "price": 1, "quantity": 1}', now()
			from manifold.logs where tenant_id in `+some,
		"update manifold.logs set head = head + 1, last_at = now() where tenant_id in "+some)
}

// awaitMembers waits until count processes work on projections.
func (w *wire) awaitMembers(ctx context.Context, count int) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		status, answer, err := w.do("GET", "/v1/admin/members", "", nil)
		var got struct{ Members []struct{ ID string } }
		if err := errors.Join(want(status, http.StatusOK, answer, err), json.Unmarshal(answer, &got)); err != nil {
			return err
		}
		if len(got.Members) == count {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// worker is a process with the role worker and a slow driver.
type worker struct{ process *exec.Cmd }

func (s *service) startWorker(f *flags) (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{exec.Command(self, "bench", "workers", "--child", roleWorker, "--save-delay", f.saveDelay.String())}
	w.process.Env = append(s.environ(), "MANIFOLD_ROLE="+string(config.RoleWorker))
	w.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := w.process.Start(); err != nil {
		return nil, fmt.Errorf("start a worker process: %w", err)
	}
	return w, nil
}

func (w *worker) kill() error { return w.process.Process.Kill() }

func (w *worker) end() {
	// How the process exits does not affect the measurements.
	_ = w.kill()
	_ = w.process.Wait()
}

// workerChild is such a process. It runs until it is killed.
func workerChild(ctx context.Context, f *flags) error {
	c, err := config.Load("", os.Environ())
	if err != nil {
		return err
	}
	slow := manifold.WithDriver("postgres", func(ctx context.Context, c manifold.DriverConfig) (drivers.Driver, error) {
		driver, err := postgres.Open(ctx, postgres.Config{URL: c.URL, MaxConns: c.MaxConns, Log: c.Log})
		if err != nil {
			return nil, err
		}
		return &slowDriver{driver, f.saveDelay}, nil
	})
	process, err := manifold.Start(ctx, c, slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), slow)
	if err != nil {
		return err
	}
	select {
	case err = <-process.Failed():
	case <-ctx.Done():
	}
	return errors.Join(err, process.Stop(context.WithoutCancel(ctx)))
}

// slowDriver waits before each save, without using a processor.
type slowDriver struct {
	drivers.Driver
	delay time.Duration
}

// Save waits, and then saves.
func (d *slowDriver) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	wait := time.NewTimer(d.delay)
	defer wait.Stop()
	select {
	case <-wait.C:
		return d.Driver.Save(ctx, build, tenant, batch)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
