package projection_test

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/projection"
)

var idleTenants = flag.Int("idle-tenants", 40, "tenants of the test of what idling costs, with 20 projections each")

// counted counts the statements that a runner sends: those for one pair, and those for all.
type counted struct{ pairs, tenants, polls atomic.Int64 }

// count counts them in the network of the runner's process.
func (c *counted) count(network *pgtest.Network) {
	for statement, n := range map[string]*atomic.Int64{
		"p.held_by is not null or b.held_by is not null": &c.pairs, // Registry.ReadFor
		"from projections p left join tenant_builds b":   &c.pairs, // Registry.LiveProjection
		"from faults f": &c.pairs,
		"select l.head, l.last_at from logs as l where l.tenant_id": &c.tenants, // Log.HasEvents
		"select l.tenant_id, l.head, l.last_at from logs":           &c.polls,
	} {
		network.Before(statement, func() bool { n.Add(1); return true })
	}
}

// countedDriver does the same for a database of documents.
type countedDriver struct {
	drivers.Driver
	pairs, surveys atomic.Int64
}

func (c *countedDriver) Checkpoint(ctx context.Context, build domain.Build, tenant domain.TenantID) (int64, error) {
	c.pairs.Add(1)
	return c.Driver.Checkpoint(ctx, build, tenant)
}

func (c *countedDriver) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error) {
	c.pairs.Add(1)
	return c.Driver.Load(ctx, build, tenant, ids)
}

func (c *countedDriver) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	c.pairs.Add(1)
	return c.Driver.Save(ctx, build, tenant, batch)
}

func (c *countedDriver) Checkpoints(ctx context.Context, build domain.Build) iter.Seq2[drivers.Checkpoint, error] {
	c.surveys.Add(1)
	return c.Driver.Checkpoints(ctx, build)
}

func (c *countedDriver) OwnCheckpoints(ctx context.Context) iter.Seq2[drivers.OwnCheckpoint, error] {
	c.surveys.Add(1)
	return c.Driver.OwnCheckpoints(ctx)
}

// Many tenants with many projections each, and some shared ones, cost no statements while nothing is appended. At the
// start they cost at most one read of all checkpoints and one round trip per tenant, even if most checkpoints are below
// the heads because the events since then are for other projections.
func TestIdleTenantsCostNoStatements(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	admin := b.db.Pool(t, pgtest.RoleSuperuser, 2)
	const own, shared = 20, 3
	tenants := make([]domain.TenantID, *idleTenants)
	for i := range tenants {
		tenants[i] = domain.NewTenantID()
		if _, err := b.store.Append(t.Context(), tenants[i], domain.Append{Streams: []domain.StreamAppend{
			{Stream: "c3-1", Expected: domain.Any, Events: []domain.NewEvent{{Type: "Add", Data: []byte(`{"k": "a", "n": 1}`)}, {Type: "Add", Data: []byte(`{"k": "b", "n": 1}`)}}},
			{Stream: "rare-1", Expected: domain.Any, Events: []domain.NewEvent{{Type: "Rare", Data: []byte(`{}`)}}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	p := b.process(options{})
	for i := range shared {
		definition := sums(fmt.Sprintf("shared-%d", i))
		definition.Source.Categories = []string{fmt.Sprintf("c%d", i)}
		if _, err := p.catalog.Create(t.Context(), domain.Everyone, definition, "test"); err != nil {
			t.Fatal(err)
		}
	}
	// Own ones as rows: making each by itself would take most of the test's time.
	for i := range own {
		if _, err := admin.Exec(t.Context(), `
			insert into manifold.projections (tenant_id, name, definition, build)
			select l.tenant_id, 'own-' || $1::int, jsonb_build_object('name', 'own-' || $1::int, 'database', 'default', 'source',
				jsonb_build_object('categories', jsonb_build_array('c' || $1::int)), 'key', 'event.data.k', 'initial', '{}'::jsonb,
				'on', '{"Add": "merge(doc, {''n'': 1})"}'::jsonb, 'mode', 'async', 'onError', 'stop'), $1::int + 1
			from manifold.logs l`, i); err != nil {
			t.Fatal(err)
		}
	}
	catchUp := b.process(options{})
	stop := catchUp.start(t, b)
	for _, tenant := range tenants {
		for _, name := range []string{"own-3", "own-7", "shared-0"} {
			if _, err := catchUp.catalog.CatchUp(t.Context(), tenant, name, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
	}
	settled(t, catchUp.runner)
	stop()

	through, network := b.throughNetwork(t)
	s, d := &counted{}, &countedDriver{Driver: b.driver}
	s.count(network)
	before := heap()
	runner := projection.NewRunner(projection.RunnerConfig{
		Store: storeOf(through), Drivers: map[string]drivers.Driver{"default": d}, Progress: projection.NewProgress(), Poll: 20 * time.Millisecond, Log: quiet,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- runner.Run(ctx) }()
	await(t, func() bool { return d.surveys.Load() > shared }) // it has begun
	settled(t, runner)
	took := time.Since(began)
	pairs := len(tenants) * (own + shared)
	if n := s.pairs.Load() + d.pairs.Load(); n > 0 {
		t.Errorf("at the start %d calls are made for single pairs, of which there are %d", n, pairs)
	}
	if n := s.tenants.Load(); n > int64(len(tenants)) {
		t.Errorf("at the start, %d of %d tenants are queried for new events", n, len(tenants))
	}
	if n := d.surveys.Load(); n != 1+shared {
		t.Errorf("at the start checkpoints are looked at %d times, want %d", n, 1+shared)
	}
	asked := s.tenants.Load()
	// Some polls later nothing else has been asked for.
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for from := s.polls.Load(); s.polls.Load() < from+10; {
		<-tick.C
	}
	if n := s.pairs.Load() + d.pairs.Load() + s.tenants.Load() - asked + d.surveys.Load() - 1 - shared; n != 0 {
		t.Errorf("while nothing is appended %d calls are made beside the polls", n)
	}
	t.Logf("%d pairs of %d tenants: the start took %s, %d round trips for tenants, %d bytes of memory a pair",
		pairs, len(tenants), took.Round(time.Millisecond), asked, (heap()-before)/int64(pairs))

	// And they are there: an event is folded by those that it is for.
	last := b.append(t, tenants[0], "c3-1", "Add", `{"k": "a", "n": 1}`)
	runner.Wake(domain.Head{Tenant: tenants[0], Position: last})
	if _, err := catchUp.catalog.CatchUp(t.Context(), tenants[0], "own-3", time.Minute); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	var tables int
	if err := admin.QueryRow(t.Context(), "select count(*) from pg_tables where schemaname = 'manifold_documents'").Scan(&tables); err != nil {
		t.Fatal(err)
	}
	if tables > 2+shared {
		t.Errorf("%d definitions made %d tables", own*len(tenants), tables)
	}
}

// settled waits until the runner has nothing to do.
func settled(t *testing.T, r *projection.Runner) {
	t.Helper()
	await(t, r.Idle)
}

func await(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(2 * time.Minute); !holds(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the runner does not reach the expected position")
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
