package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

func growthCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "growth", "Measure the cost of following and rebuilding as a log grows",
		`Measure the cost of following and rebuilding as a log grows.

The benchmark does this for each size of a log and for three projections: one of all events, and two of an event type that one
event in 10,000 has, in one category or in any. It measures the time from the moment at which the runner learns of 1,000 more
events until it has followed them (the median of five), and how many blocks of the table of events and its indexes that
touches, in memory or not. For the rare type it also measures time and blocks of a replay from the first event, as in a
rebuild. Blocks are those that PostgreSQL counts (pg_statio_all_tables), less those of starting to follow.

With --scenario curve, the same logs grow from size to size, and at each it measures everything that clients do: append, read,
follow, load states, rebuild and query; and how much space the events take.`,
		growth, "tenants")
	command.Flags().StringVar(&f.scenario, "scenario", "follow", "follow or curve")
	command.Flags().IntVar(&f.tenants, "tenants", 1, "curve: number of tenants, which share the events")
	command.Flags().DurationVar(&f.duration, "duration", 3*time.Second, "curve: how long to measure each kind of request")
	command.Flags().IntSliceVar(&f.sizes, "sizes", []int{10_000, 1_000_000}, "events in the log")
	return command
}

// rare is how many events there are for each event of the rare type.
const rare = 10_000

// more is how many events are followed in one measurement.
const more = 1000

func growth(ctx context.Context, r *run) error {
	switch r.scenario {
	case "follow":
	case "curve":
		r.Name, r.Clients = fmt.Sprintf("growth --scenario curve --sizes %d --tenants %d", r.sizes, r.tenants), 1
		return growthCurve(ctx, r)
	default:
		return fmt.Errorf("--scenario %s: expected follow or curve", r.scenario)
	}
	r.Name, r.Clients = fmt.Sprintf("growth --sizes %d", r.sizes), 1
	for _, size := range r.sizes {
		if size < 1 {
			return errors.New("--sizes must be at least 1 each")
		}
		if err := growthOf(ctx, r, size); err != nil {
			return fmt.Errorf("with %d events: %w", size, err)
		}
		if err := r.close(); err != nil {
			return err
		}
	}
	return nil
}

func growthOf(ctx context.Context, r *run, size int) error {
	db, err := r.createDatabase(ctx)
	if err != nil {
		return err
	}
	tenants, err := db.createTenants(ctx, 1)
	if err != nil {
		return err
	}
	if err := r.fillLogs(ctx, history{events: size, streams: max(1, size/100), rare: rare}, tenants...); err != nil {
		return err
	}
	// Blocks touched by a vacuum must not count.
	if err := execute(ctx, db.super, "alter table manifold.events set (autovacuum_enabled = false)"); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, db.super)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if r.SyncedCommits, err = db.synced(ctx); err != nil {
		return err
	}
	g := &growingLog{db: db, conn: conn, tenant: tenants[0], head: int64(size)}
	count := `merge(doc, {"events": doc.events + 1})`
	initial := []byte(`{"events":0}`)
	for _, one := range []struct {
		what       string
		definition domain.Definition
		rare       bool
	}{
		{"a rare type", domain.Definition{Name: "rare", Source: domain.Source{Categories: []string{"order"}}, Initial: initial, On: map[string]string{rareType: count}}, true},
		{"a rare type of any category", domain.Definition{Name: "rare-anywhere", Initial: initial, On: map[string]string{rareType: count}}, true},
		{"all events", domain.Definition{Name: "all", Initial: initial, On: map[string]string{"*": count}}, false},
	} {
		r.log("following %s", one.what)
		what := fmt.Sprintf("%s, %d in the log", one.what, size)
		took, blocks, err := g.follow(ctx, one.definition)
		if err != nil {
			return fmt.Errorf("follow %s: %w", one.what, err)
		}
		r.addFigure(float64(took.Microseconds())/1000, "ms", "following %d more, %s", more, what)
		r.addFigure(float64(blocks), "blocks", "following %d more, %s", more, what)
		if !one.rare {
			continue
		}
		if took, blocks, err = g.replay(ctx, one.definition); err != nil {
			return fmt.Errorf("replay %s: %w", one.what, err)
		}
		r.addFigure(float64(took.Microseconds())/1000, "ms", "replaying %s", what)
		r.addFigure(float64(blocks), "blocks", "replaying %s", what)
	}
	var heap, category int64
	err = conn.QueryRow(ctx, "select pg_relation_size('manifold.events') / 8192, pg_relation_size('manifold.events_category') / 8192").Scan(&heap, &category)
	if err != nil {
		return err
	}
	r.addFigure(float64(heap), "blocks", "the table of events has, %d in the log", size)
	r.addFigure(float64(category), "blocks", "its index by category has, %d in the log", size)
	return nil
}

// growingLog is a log that grows.
type growingLog struct {
	db     *database
	conn   *pgx.Conn
	tenant domain.TenantID
	head   int64
	rounds int
}

// followingEngine is an engine with a runner.
type followingEngine struct {
	*engine
	runner *projection.Runner
	turned chan struct{}
	stop   context.CancelFunc
	done   sync.WaitGroup
}

func (g *growingLog) open(ctx context.Context) (*followingEngine, error) {
	opened, err := g.db.openEngine(ctx)
	if err != nil {
		return nil, err
	}
	e := &followingEngine{engine: opened, turned: make(chan struct{}, 1), stop: func() {}}
	e.runner = projection.NewRunner(projection.RunnerConfig{
		Store: e.store, Drivers: e.drivers, Progress: e.progress, Poll: time.Hour, Log: slog.New(slog.DiscardHandler),
		Observer: projection.Observer{Turn: func(domain.ProjectionID) {
			select {
			case e.turned <- struct{}{}:
			default:
			}
		}},
	})
	return e, nil
}

func (e *followingEngine) run(ctx context.Context) {
	ctx, e.stop = context.WithCancel(ctx)
	e.done.Go(func() { _ = e.runner.Run(ctx) }) // always returns nil
}

func (e *followingEngine) close() {
	e.stop()
	e.done.Wait()
	e.engine.close()
}

// awaitHead waits until the runner has had a turn and is at the head.
func (e *followingEngine) awaitHead(ctx context.Context) error {
	for {
		select {
		case <-e.turned:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		behind := int64(0)
		for _, lag := range e.runner.Lags() {
			behind += lag.Positions
			if lag.Faulted > 0 {
				return errors.New("the projection has stopped at an event")
			}
		}
		if behind == 0 {
			return nil
		}
	}
}

// follow lets a new projection catch up, and then measures the cost of following.
func (g *growingLog) follow(ctx context.Context, d domain.Definition) (took time.Duration, blocks int64, err error) {
	if took, err = g.followTime(ctx, d); err != nil {
		return 0, 0, err
	}
	starting, err := g.followBlocks(ctx, 1)
	if err != nil {
		return 0, 0, err
	}
	if blocks, err = g.followBlocks(ctx, 1+more); err != nil {
		return 0, 0, err
	}
	e, err := g.open(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer e.close()
	return took, max(0, blocks-starting), e.catalog.Delete(ctx, g.tenant, d.Name, "benchmark")
}

// followTime returns the median time until a new projection has followed more events.
func (g *growingLog) followTime(ctx context.Context, d domain.Definition) (time.Duration, error) {
	e, err := g.open(ctx)
	if err != nil {
		return 0, err
	}
	defer e.close()
	if _, err := e.catalog.Create(ctx, g.tenant, d, "benchmark"); err != nil {
		return 0, err
	}
	if err := g.grow(ctx, 1); err != nil {
		return 0, err
	}
	e.run(ctx)
	if err := e.awaitHead(ctx); err != nil {
		return 0, err
	}
	times := make([]time.Duration, 5)
	for i := range times {
		if err := g.grow(ctx, more); err != nil {
			return 0, err
		}
		began := time.Now()
		e.runner.Wake(domain.Head{Tenant: g.tenant, Position: g.head, LastAt: began})
		if err := e.awaitHead(ctx); err != nil {
			return 0, err
		}
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// followBlocks returns how many blocks a runner touches that starts when there are this many more events, until it has
// caught up.
func (g *growingLog) followBlocks(ctx context.Context, more int) (int64, error) {
	if err := g.grow(ctx, more); err != nil {
		return 0, err
	}
	return g.touched(ctx, func(e *followingEngine) error {
		e.run(ctx)
		return e.awaitHead(ctx)
	})
}

// replay measures the cost of a rebuild.
func (g *growingLog) replay(ctx context.Context, d domain.Definition) (took time.Duration, blocks int64, err error) {
	fold, err := folding.Compile(d)
	if err != nil {
		return 0, 0, err
	}
	build := domain.Build{ProjectionID: domain.ProjectionID{Owner: g.tenant, Name: d.Name}, Number: 1 << 40}
	blocks, err = g.touched(ctx, func(e *followingEngine) error {
		replay := &projection.Replay{Driver: e.driver, Build: build, Tenant: g.tenant, Fold: fold, Limits: projection.CatchUpLimits}
		began := time.Now()
		err := replay.Run(ctx, e.Tables, g.head)
		took = time.Since(began)
		return errors.Join(err, e.driver.DropTable(ctx, build))
	})
	return took, blocks, err
}

// touched returns how many blocks of the events table and its indexes an engine touches during do.
func (g *growingLog) touched(ctx context.Context, do func(*followingEngine) error) (int64, error) {
	before, err := g.blocks(ctx)
	if err != nil {
		return 0, err
	}
	e, err := g.open(ctx)
	if err != nil {
		return 0, err
	}
	err = do(e)
	e.close()
	if err != nil {
		return 0, err
	}
	after, err := g.blocks(ctx)
	return after - before, err
}

// blocks returns the count for all ended sessions. A session that is still open reports its blocks late.
func (g *growingLog) blocks(ctx context.Context) (blocks int64, err error) {
	err = g.db.await(ctx, "select count(*) = 1 from pg_stat_activity where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()")
	if err != nil {
		return 0, err
	}
	err = g.conn.QueryRow(ctx, `select heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0)
		from pg_statio_all_tables where schemaname = 'manifold' and relname = 'events'`).Scan(&blocks)
	return blocks, err
}

// grow makes the log longer over a separate connection, which reports its touched blocks when it closes. The last
// event is of the rare type, so each projection has something to follow. The events are so large that none fits into
// the free space of an earlier block.
func (g *growingLog) grow(ctx context.Context, more int) error {
	g.rounds++
	err := execute(ctx, g.db.super, fmt.Sprintf(
		`insert into manifold.events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, created_at)
			select '%s', %d + n, gen_random_uuid(), 'order-more.%d.' || n %% 100, (n + 99) / 100, case when n = %d then '%s' else 'ItemAdded' end,
				jsonb_build_object('sku', 'SKU-1', 'note', repeat('0', 320)), now() from generate_series(1, %d) as n`,
		g.tenant, g.head, g.rounds, more, rareType, more),
		fmt.Sprintf("update manifold.logs set head = head + %d, last_at = now() where tenant_id = '%s'", more, g.tenant))
	g.head += int64(more)
	return err
}
