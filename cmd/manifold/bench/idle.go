package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

func idleCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "idle", "Measure what projections cost to which nothing comes", idle)
	command.Long = `Measure what projections cost to which nothing comes.

Each tenant has projections of its own and one event. When all of them have folded it, the service is started anew, and the
processor time of service and database is measured: from its start on, and once more as long behind that. It is that of /proc,
so the database must be on this machine.`
	command.Flags().IntVar(&f.tenants, "tenants", 1000, "tenants")
	command.Flags().IntVar(&f.projections, "projections", 20, "projections of each tenant's own")
	command.Flags().DurationVar(&f.duration, "duration", 20*time.Second, "how long to measure, each time")
	return command
}

func idle(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
	if f.tenants < 1 || f.projections < 1 {
		return Result{}, errors.New("--tenants and --projections must be at least 1")
	}
	db, err := openDatabase(ctx, f.databaseURL, progress)
	if err != nil {
		return Result{}, err
	}
	s := &service{db: db, close: db.close}
	defer func() { err = errors.Join(err, s.close()) }()
	tenants, err := db.makeTenants(ctx, f.tenants)
	if err == nil {
		err = db.preloadAll(ctx, tenants, f.tenants, f.tenants, progress)
	}
	if err == nil {
		err = db.makeProjections(ctx, f.projections)
	}
	if err != nil {
		return Result{}, err
	}
	// A separate service lets the projections catch up. Then it ends, and leaves the database to the measured one.
	first := &service{db: db, name: "first", close: func() error { return nil }}
	if err := first.start(ctx, nil, progress, nil); err != nil {
		return Result{}, errors.Join(err, first.close())
	}
	fmt.Fprintf(progress, "projecting, %d tenants with %d projections each ...\n", f.tenants, f.projections)
	if err := errors.Join(db.awaitOwn(ctx, f.tenants*f.projections), first.close()); err != nil {
		return Result{}, err
	}
	if err := execute(ctx, db.super, "vacuum analyze", "checkpoint"); err != nil {
		return Result{}, err
	}
	server, err := db.postmaster(ctx)
	if err != nil {
		return Result{}, err
	}
	before, began := familyTime(server), time.Now()
	if err := s.start(ctx, nil, progress, nil); err != nil {
		return Result{}, err
	}
	result := Result{Name: fmt.Sprintf("idle --tenants %d --projections %d", f.tenants, f.projections), Clients: 1}
	result.tell(time.Since(began).Seconds(), "s", "from the start until it answers")
	pid := s.process.Process.Pid
	var serviceBefore time.Duration
	for _, when := range []string{"from its start on", "behind that"} {
		fmt.Fprintf(progress, "measuring for %s, %s ...\n", f.duration, when)
		pause(ctx, f.duration-time.Since(began))
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		took, service, database := time.Since(began), processTime(pid), familyTime(server)
		share := func(used time.Duration) float64 { return 100 * used.Seconds() / took.Seconds() }
		result.tell(share(service-serviceBefore), "% of a processor", "service, %s %s", f.duration, when)
		result.tell(share(database-before), "% of a processor", "database, %s %s", f.duration, when)
		began, before, serviceBefore = time.Now(), database, service
	}
	err = s.finish(ctx, &result, "", nil, progress)
	return result, err
}

// makeProjections creates private projections for each tenant, directly in the database.
func (db *database) makeProjections(ctx context.Context, each int) error {
	conn, err := pgx.Connect(ctx, db.super)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, `insert into manifold.projections (tenant_id, name, definition, build)
		select t.tenant_id, 'own-' || n, jsonb_set($1::jsonb, '{name}', to_jsonb('own-' || n)), n
		from manifold.tenants as t, generate_series(1, $2::int) as n`, fmt.Sprintf(orders, defaultDatabase), each)
	if err == nil {
		_, err = conn.Exec(ctx, "insert into manifold.build_numbers (tenant_id, last) select tenant_id, $1 from manifold.tenants", each)
	}
	if err != nil {
		return fmt.Errorf("make projections: %w", err)
	}
	return nil
}

// awaitOwn waits until count builds of private projections have a checkpoint.
func (db *database) awaitOwn(ctx context.Context, count int) error {
	conn, err := pgx.Connect(ctx, db.super)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var got int
		if err := conn.QueryRow(ctx, "select count(*) from manifold_documents.documents where id = ''").Scan(&got); err != nil {
			return fmt.Errorf("look at the checkpoints: %w", err)
		}
		if got >= count {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// postmaster returns the parent process of all sessions of the database's server.
func (db *database) postmaster(ctx context.Context) (int, error) {
	conn, err := pgx.Connect(ctx, db.super)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var pid int
	if err := conn.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid); err != nil {
		return 0, err
	}
	stat, ok := readStat(pid)
	if !ok {
		return 0, errors.New("the database's server is not a process of this machine")
	}
	return stat.parent, nil
}
