package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/domain"
)

func isolationCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "isolation", "Measure a quiet tenant's lag beside a backlog and a fault", isolation)
	command.Long = `Measure a quiet tenant's lag beside a backlog and a fault.

Three tenants have a shared projection: one whose log is suddenly a backlog ahead of its documents, one whose projection
stands before an event that cannot be folded and whose log keeps growing, and a quiet one. What is measured is the quiet
tenant's lag, from an append's answer until a read with minPosition gives the document with it: first alone, then for as
long as there is a backlog. Every append is read.`
	command.Flags().IntVar(&f.backlog, "backlog", 2_000_000, "events that one tenant is behind")
	command.Flags().IntVar(&f.documents, "documents", 100_000, "documents that they are of")
	command.Flags().Float64Var(&f.rate, "rate", 50, "events that the quiet tenant appends a second, one a request")
	command.Flags().DurationVar(&f.duration, "duration", 20*time.Second, "how long to measure, at the most; half of it for the quiet tenant alone")
	command.Flags().DurationVar(&f.warmUp, "warm-up", 2*time.Second, "how long to run before measuring")
	return command
}

// brokenOrders is orders with an event type that cannot be folded.
var brokenOrders = strings.Replace(orders, `"on":{`, `"on":{"Broken":"merge(doc, {\"events\": doc.nothing + 1})",`, 1)

func isolation(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
	if f.backlog < 1 || f.documents < 1 || f.rate <= 0 {
		return Result{}, errors.New("--backlog and --documents must be at least 1, --rate more than 0")
	}
	s, err := startService(ctx, f, progress, nil)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	operator, err := dial(s.url, s.operator)
	if err != nil {
		return Result{}, err
	}
	defer operator.close()
	status, answer, err := operator.do("POST", "/v1/projections", "", fmt.Appendf(nil, brokenOrders, defaultDatabase))
	if err := want(status, http.StatusCreated, answer, err); err != nil {
		return Result{}, err
	}
	const appenders, quietReaders = 4, 32
	wires, err := s.connect(appenders + quietReaders)
	if err != nil {
		return Result{}, err
	}
	defer disconnect(wires)
	quiet := lagLoad{appenders: wires[:appenders], readers: wires[appenders:], path: ordersPath, rate: f.rate, every: true}
	var alone, lags samples
	quiet.record = alone.add
	begin := time.Now().Add(f.warmUp)
	fmt.Fprintf(progress, "appending %.0f events/s for %s, alone ...\n", f.rate, f.duration/2)
	if _, err := quiet.drive(ctx, f.warmUp, f.duration/2); err != nil {
		return Result{}, err
	}
	faulty, err := s.breakTenant(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("make a tenant whose projection faults: %w", err)
	}
	defer faulty.close()
	behind, err := s.fillBacklog(ctx, f, progress)
	if err != nil {
		return Result{}, fmt.Errorf("make a backlog: %w", err)
	}
	defer behind.close(ctx)
	fmt.Fprintf(progress, "appending %.0f events/s for %s at the most, beside the backlog ...\n", f.rate, f.duration)
	if err := behind.begun(ctx); err != nil {
		return Result{}, err
	}
	from, began := behind.checkpoint.Load(), time.Now()
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var beside sync.WaitGroup
	beside.Go(func() { stop(behind.follow(running)) })
	beside.Go(func() {
		if err := faulty.appendOn(running, f.rate); err != nil {
			stop(err)
		}
	})
	quiet.run = 1
	quiet.record = func(at time.Time, lag time.Duration) {
		if behind.left() {
			lags.add(at, lag)
		}
	}
	beganBeside := time.Now().Add(f.warmUp)
	appended, err := quiet.drive(running, f.warmUp, f.duration)
	folded, took, left := behind.checkpoint.Load()-from, time.Since(began), int64(f.backlog)-behind.checkpoint.Load()
	stop(errEnough)
	beside.Wait()
	if err == nil {
		err = faulty.stillStands()
	}
	if err != nil {
		return Result{}, err
	}
	before, measured := alone.between(begin, time.Time{}), lags.between(beganBeside, time.Time{})
	if before.latencies == nil || measured.latencies == nil {
		return Result{}, errors.New("nothing was measured while there was a backlog: take a larger --backlog, or a longer --duration")
	}
	result := Result{Name: fmt.Sprintf("isolation --backlog %d --rate %.0f", f.backlog, f.rate), Clients: appenders, what: "quiet tenant's lag"}
	appended.latencies = measured.latencies
	result.take(appended)
	result.tellLatencies(before, "quiet tenant's lag, alone")
	result.tell(float64(measured.events), "", "appends read while there was a backlog")
	result.tell(float64(measured.latencies.Max())/1000, "ms", "the longest lag among them")
	result.tell(float64(folded)/took.Seconds(), "events/s", "folded of the backlog meanwhile")
	result.tell(float64(left), "events", "left of it in the end")
	result.GeneratorCPU = generatorShare(appended)
	err = s.finish(ctx, &result, "", nil, progress)
	return result, err
}

// brokenTenant is a tenant whose projection is stopped at its first event.
type brokenTenant struct {
	wire *wire
	post func() (string, []byte, error)
}

func (s *service) breakTenant(ctx context.Context) (*brokenTenant, error) {
	_, key, err := makeTenant(s.url, s.operator, "broken")
	if err != nil {
		return nil, err
	}
	w, err := dial(s.url, key)
	if err != nil {
		return nil, err
	}
	b := &brokenTenant{w, appender(w, 0, streamLength, 1)}
	status, answer, err := w.do("POST", "/v1/streams/order-broken/events", "", []byte(`[{"type":"Broken","data":{}}]`))
	err = want(status, http.StatusCreated, answer, err)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); err == nil; {
		if err = b.stillStands(); err == nil {
			return b, nil
		}
		if !errors.Is(err, errNotFaulted) {
			break
		}
		select {
		case <-tick.C:
			err = nil
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		}
	}
	w.close()
	return nil, err
}

var errNotFaulted = errors.New("the projection of the broken tenant does not stand still")

func (b *brokenTenant) stillStands() error {
	status, answer, err := b.wire.do("GET", ordersPath+"/state", "", nil)
	var is struct{ State string }
	if err := errors.Join(want(status, http.StatusOK, answer, err), json.Unmarshal(answer, &is)); err != nil {
		return err
	}
	if is.State != "faulted" {
		return fmt.Errorf("%w: it is %s", errNotFaulted, is.State)
	}
	return nil
}

// appendOn appends to the log until ctx ends.
func (b *brokenTenant) appendOn(ctx context.Context, rate float64) error {
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if _, _, err := b.post(); err != nil {
				return fmt.Errorf("append to the broken tenant's log: %w", err)
			}
		}
	}
}

func (b *brokenTenant) close() { b.wire.close() }

// backlog is the progress of the documents of a tenant that lags behind.
type backlog struct {
	conn       *pgx.Conn
	query      string
	tenant     domain.TenantID
	events     int64
	checkpoint atomic.Int64
}

// fillBacklog creates a tenant with many events, which become visible to the service all at once at the end.
func (s *service) fillBacklog(ctx context.Context, f *flags, progress io.Writer) (*backlog, error) {
	fmt.Fprintf(progress, "loading a backlog of %d events ...\n", f.backlog)
	tenants, err := s.db.makeTenants(ctx, 1)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, s.db.super)
	if err != nil {
		return nil, err
	}
	b := &backlog{conn: conn, tenant: tenants[0], events: int64(f.backlog)}
	table, err := liveTable(ctx, conn)
	if err == nil {
		b.query = "select coalesce(max(version), 0) from " + table + " where tenant_id = $1 and id = ''"
		err = fillEvents(ctx, conn, newSales(0), b.tenant, f.backlog, f.documents, time.Now())
	}
	for _, statement := range []string{"vacuum analyze manifold.events", "checkpoint"} {
		if err == nil {
			_, err = conn.Exec(ctx, statement)
		}
	}
	if err == nil {
		_, err = conn.Exec(ctx, setHead, b.tenant.String(), f.backlog, time.Now())
	}
	if err != nil {
		b.close(ctx)
		return nil, err
	}
	return b, nil
}

func (b *backlog) close(ctx context.Context) { b.conn.Close(context.WithoutCancel(ctx)) }

func (b *backlog) look(ctx context.Context) error {
	var checkpoint int64
	if err := b.conn.QueryRow(ctx, b.query, b.tenant.String()).Scan(&checkpoint); err != nil {
		return fmt.Errorf("look at the backlog's checkpoint: %w", err)
	}
	b.checkpoint.Store(checkpoint)
	return nil
}

// begun returns when the service has started to process the backlog.
func (b *backlog) begun(ctx context.Context) error {
	return b.until(ctx, func() bool { return b.checkpoint.Load() > 0 })
}

// follow returns errEnough when the backlog is empty or ctx has ended.
func (b *backlog) follow(ctx context.Context) error {
	if err := b.until(ctx, func() bool { return !b.left() }); err != nil && ctx.Err() == nil {
		return err
	}
	return errEnough
}

// left reports whether there was still a backlog at the last check.
func (b *backlog) left() bool { return b.checkpoint.Load() < b.events }

func (b *backlog) until(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := b.look(ctx); err != nil || done() {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
