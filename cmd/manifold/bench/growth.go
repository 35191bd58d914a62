package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/tables"
)

func growthCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "growth", "Measure what following and rebuilding cost as a log grows", growth)
	command.Long = `Measure what following and rebuilding cost as a log grows.

For each size of a log and each of three projections, one of all events and two of a type that one event in 10,000 has, in one
category or in any: the time from the moment at which the runner learns of 1,000 more events until it has followed them, the
median of five; how many blocks of the table of events and its indexes that touches, in memory or not; and for the rare type
time and blocks of a replay from the first event, as a rebuild does it. Blocks are those that PostgreSQL counts
(pg_statio_all_tables), less those of starting to follow.`
	command.Flags().IntSliceVar(&f.sizes, "sizes", []int{10_000, 1_000_000}, "events in the log")
	return command
}

// rare is how many events there are for each event of the rare type.
const rare = 10_000

// more is how many events are followed in one measurement.
const more = 1000

func growth(ctx context.Context, f *flags, progress io.Writer) (Result, error) {
	result := Result{Name: fmt.Sprintf("growth --sizes %d", f.sizes), Clients: 1}
	for _, size := range f.sizes {
		if size < 1 {
			return Result{}, errors.New("--sizes must be at least 1 each")
		}
		if err := growthOf(ctx, f, size, &result, progress); err != nil {
			return Result{}, fmt.Errorf("with %d events: %w", size, err)
		}
	}
	return result, nil
}

func growthOf(ctx context.Context, f *flags, size int, result *Result, progress io.Writer) (err error) {
	db, err := openDatabase(ctx, f.databaseURL, progress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	tenants, err := db.makeTenants(ctx, 1)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, db.super)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	fmt.Fprintf(progress, "loading %d events ...\n", size)
	goods := newSales(0)
	goods.rare = rare
	if err := fillLog(ctx, conn, goods, tenants[0], size, max(1, size/100)); err != nil {
		return err
	}
	// Blocks touched by a vacuum must not count.
	for _, statement := range []string{"vacuum analyze manifold.events", "alter table manifold.events set (autovacuum_enabled = false)"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if result.SyncedCommits, err = synced(ctx, db.super); err != nil {
		return err
	}
	g := &grown{db: db, conn: conn, tenant: tenants[0], head: int64(size)}
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
		fmt.Fprintf(progress, "following %s ...\n", one.what)
		what := fmt.Sprintf("%s, %d in the log", one.what, size)
		took, blocks, err := g.follow(ctx, one.definition)
		if err != nil {
			return fmt.Errorf("follow %s: %w", one.what, err)
		}
		result.tell(float64(took.Microseconds())/1000, "ms", "following %d more, %s", more, what)
		result.tell(float64(blocks), "blocks", "following %d more, %s", more, what)
		if !one.rare {
			continue
		}
		if took, blocks, err = g.replay(ctx, one.definition); err != nil {
			return fmt.Errorf("replay %s: %w", one.what, err)
		}
		result.tell(float64(took.Microseconds())/1000, "ms", "replaying %s", what)
		result.tell(float64(blocks), "blocks", "replaying %s", what)
	}
	var heap, category int64
	err = conn.QueryRow(ctx, "select pg_relation_size('manifold.events') / 8192, pg_relation_size('manifold.events_category') / 8192").Scan(&heap, &category)
	if err != nil {
		return err
	}
	result.tell(float64(heap), "blocks", "the table of events has, %d in the log", size)
	result.tell(float64(category), "blocks", "its index by category has, %d in the log", size)
	return nil
}

// grown is a log that grows.
type grown struct {
	db     *database
	conn   *pgx.Conn
	tenant domain.TenantID
	head   int64
	rounds int
}

// engine is a runner in this process.
type engine struct {
	store   *tables.Tables
	driver  *postgres.Driver
	catalog *projection.Catalog
	runner  *projection.Runner
	turned  chan struct{}
	end     context.CancelFunc
	done    sync.WaitGroup
}

func (g *grown) open(ctx context.Context) (*engine, error) {
	e := &engine{turned: make(chan struct{}, 1)}
	var err error
	if e.store, err = openStore(ctx, g.db.super); err != nil {
		return nil, err
	}
	if e.driver, err = postgres.Open(ctx, postgres.Config{URL: asRole(g.db.super, migrations.RoleDocuments)}); err != nil {
		e.store.Close()
		return nil, err
	}
	log, databases, shown := slog.New(slog.DiscardHandler), map[string]drivers.Driver{folding.DefaultDatabase: e.driver}, projection.NewProgress()
	e.catalog = projection.NewCatalog(projection.CatalogConfig{
		Store: projection.Store{Log: e.store.Log, Registry: e.store.Registry, Tenants: e.store.TenantTables}, Drivers: databases, Progress: shown, LogIn: folding.DefaultDatabase, Log: log,
	})
	e.runner = projection.NewRunner(projection.RunnerConfig{
		Store: projection.Store{Log: e.store.Log, Registry: e.store.Registry, Tenants: e.store.TenantTables}, Drivers: databases, Progress: shown, Poll: time.Hour, Log: log,
		Observer: projection.Observer{Turn: func(domain.ProjectionID) {
			select {
			case e.turned <- struct{}{}:
			default:
			}
		}},
	})
	return e, nil
}

func (e *engine) run(ctx context.Context) {
	ctx, e.end = context.WithCancel(ctx)
	e.done.Go(func() { _ = e.runner.Run(ctx) }) // always returns nil
}

func (e *engine) close() {
	if e.end != nil {
		e.end()
		e.done.Wait()
	}
	e.store.Close()
	e.driver.Close()
}

// reached waits until the runner has had a turn and is at the head.
func (e *engine) reached(ctx context.Context) error {
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
func (g *grown) follow(ctx context.Context, d domain.Definition) (took time.Duration, blocks int64, err error) {
	e, err := g.open(ctx)
	if err != nil {
		return 0, 0, err
	}
	_, err = e.catalog.Create(ctx, g.tenant, d, "benchmark")
	if err == nil {
		err = g.grow(ctx, 1)
	}
	e.run(ctx)
	if err == nil {
		err = e.reached(ctx)
	}
	lags := load{}
	for range 5 {
		if err == nil {
			err = g.grow(ctx, more)
		}
		if err != nil {
			break
		}
		began := time.Now()
		e.runner.Wake(domain.Head{Tenant: g.tenant, Position: g.head, LastAt: began})
		err = e.reached(ctx)
		lags.count(more, time.Since(began))
	}
	e.close()
	if err != nil {
		return 0, 0, err
	}
	took = time.Duration(lags.latencies.ValueAtPercentile(50)) * time.Microsecond
	starting, err := g.start(ctx, 1)
	if err != nil {
		return 0, 0, err
	}
	if blocks, err = g.start(ctx, 1+more); err != nil {
		return 0, 0, err
	}
	e, err = g.open(ctx)
	if err == nil {
		err = e.catalog.Delete(ctx, g.tenant, d.Name, "benchmark")
		e.close()
	}
	return took, max(0, blocks-starting), err
}

// start starts a runner when there are this many more events. It returns how many blocks the runner touches until it
// has caught up.
func (g *grown) start(ctx context.Context, more int) (int64, error) {
	if err := g.grow(ctx, more); err != nil {
		return 0, err
	}
	return g.touched(ctx, func(e *engine) error {
		e.run(ctx)
		return e.reached(ctx)
	})
}

// replay measures the cost of a rebuild.
func (g *grown) replay(ctx context.Context, d domain.Definition) (took time.Duration, blocks int64, err error) {
	fold, err := folding.Compile(d)
	if err != nil {
		return 0, 0, err
	}
	build := domain.Build{ProjectionID: domain.ProjectionID{Owner: g.tenant, Name: d.Name}, Number: 1 << 40}
	blocks, err = g.touched(ctx, func(e *engine) error {
		replay := &projection.Replay{Driver: e.driver, Build: build, Tenant: g.tenant, Fold: fold, Limits: projection.CatchUpLimits}
		began := time.Now()
		err := replay.Run(ctx, e.store, g.head)
		took = time.Since(began)
		return errors.Join(err, e.driver.DropTable(ctx, build))
	})
	return took, blocks, err
}

// touched returns how many blocks of the events table and its indexes an engine touches during do.
func (g *grown) touched(ctx context.Context, do func(*engine) error) (int64, error) {
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
func (g *grown) blocks(ctx context.Context) (blocks int64, err error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for others := 1; others > 0; {
		err := g.conn.QueryRow(ctx, "select count(*) from pg_stat_activity where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()").Scan(&others)
		if err != nil {
			return 0, err
		}
		if others > 0 {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		}
	}
	err = g.conn.QueryRow(ctx, `select heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0)
		from pg_statio_all_tables where schemaname = 'manifold' and relname = 'events'`).Scan(&blocks)
	return blocks, err
}

// grow makes the log longer over a separate connection, which reports its touched blocks when it closes. The last
// event is of the rare type, so each projection has something to follow. The events are so large that none fits into
// the free space of an earlier block.
func (g *grown) grow(ctx context.Context, more int) error {
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
