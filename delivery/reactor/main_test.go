package reactor_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/delivery/reactor"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/rebuild"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/upcasting"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

// bench is a separate database for a test, with what all its processes share.
type bench struct {
	store  *tables.Tables
	driver *postgres.Driver
	inline *projection.Inline
}

// inlineFolds is what the store folds with during an append.
type inlineFolds struct{ of *projection.Inline }

func (f *inlineFolds) Open(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) (eventlog.InlineFolds, []domain.Statement, []domain.TenantBuild, error) {
	folds, checkpoints, gone, err := f.of.Open(ctx, tenant, head, builds)
	if err != nil {
		return nil, nil, nil, err
	}
	return folds, checkpoints, gone, nil
}

func (f *inlineFolds) CatchUp(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) ([]domain.TenantBuild, error) {
	return f.of.CatchUp(ctx, tenant, head, builds)
}

func newBench(t testing.TB) *bench {
	t.Helper()
	db := pgtest.Database(t)
	folds := &inlineFolds{}
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention),
		MaxConns: 8, Inline: folds, Log: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	d, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments), MaxConns: 8, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	upcasters, err := upcasting.New(s.UpcastersBySystem())
	if err != nil {
		t.Fatal(err)
	}
	folds.of = projection.NewInline(projection.InlineConfig{Store: s, Drivers: map[string]drivers.Driver{"default": d}, Upcasters: upcasters, Log: quiet})
	return &bench{s, d, folds.of}
}

func (b *bench) tenant(t testing.TB) domain.TenantID {
	t.Helper()
	id := domain.NewTenantID()
	if err := b.store.CreateTenant(t.Context(), domain.Tenant{ID: id, Name: id.String()}); err != nil {
		t.Fatal(err)
	}
	return id
}

// append appends events of one type with these data to a stream, and returns the position of the last one.
func (b *bench) append(t testing.TB, tenant domain.TenantID, stream, eventType string, data ...string) int64 {
	t.Helper()
	events := make([]domain.NewEvent, len(data))
	for i := range data {
		events[i] = domain.NewEvent{Type: eventType, Data: json.RawMessage(data[i])}
	}
	appended, err := b.store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: domain.Any, Events: events}}})
	if err != nil {
		t.Fatal(err)
	}
	return appended.Position
}

// log returns all events of a tenant.
func (b *bench) log(t testing.TB, tenant domain.TenantID) []domain.Event {
	t.Helper()
	events, err := b.store.ReadLog(t.Context(), tenant, domain.LogQuery{From: 1, Limit: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// process is what one process runs. Every process owns all tenants.
type process struct {
	bench     *bench
	catalog   *projection.Catalog
	runner    *projection.Runner
	groups    *group.Groups
	reactors  *reactor.Reactors
	changes   *reactor.Changes
	consumers *consume.Dispatcher
	rebuilds  *rebuild.Rebuilds
	dead      atomic.Bool // from now on, nothing that it does takes effect
}

var errDead = errors.New("the process is dead")

// mortal wraps the groups and appends of a process that may be dead.
type mortal struct {
	*group.Groups
	p *process
}

func (m mortal) Ack(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt) ([]domain.Outcome, error) {
	if m.p.dead.Load() {
		return nil, errDead
	}
	return m.Groups.Ack(ctx, tenant, name, attempts)
}

func (m mortal) Nack(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt, nack domain.Nack) ([]domain.Outcome, error) {
	if m.p.dead.Load() {
		return nil, errDead
	}
	return m.Groups.Nack(ctx, tenant, name, attempts, nack)
}

func (m mortal) GiveBack(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt) ([]domain.Outcome, error) {
	if m.p.dead.Load() {
		return nil, errDead
	}
	return m.Groups.GiveBack(ctx, tenant, name, attempts)
}

func (m mortal) Append(ctx context.Context, tenant domain.TenantID, request domain.Append) (domain.Appended, error) {
	if m.p.dead.Load() {
		return domain.Appended{}, errDead
	}
	return m.p.bench.store.Append(ctx, tenant, request)
}

// start runs a process until the test ends or stop is called.
func (b *bench) start(t testing.TB, reactors ...reactor.Reactor) (p *process, stop func()) {
	t.Helper()
	byName := map[string]drivers.Driver{"default": b.driver}
	progress := projection.NewProgress()
	p = &process{bench: b}
	p.catalog = projection.NewCatalog(projection.CatalogConfig{Store: b.store, Drivers: byName, Progress: progress, LogIn: "default", Log: quiet})
	p.runner = projection.NewRunner(projection.RunnerConfig{
		Store: b.store, Drivers: byName, Progress: progress, Inline: b.inline, Poll: 100 * time.Millisecond, Log: quiet,
	})
	p.rebuilds = rebuild.New(rebuild.Config{
		Store:   rebuild.Store{Log: b.store.Log, Registry: b.store.Registry, Tenants: b.store.TenantTables},
		Drivers: byName, Catalog: p.catalog, Poll: 100 * time.Millisecond, Keep: 10 * time.Minute, Log: quiet,
	})
	p.groups = group.New(group.Config{Store: b.store, Log: quiet, Changed: func(tenant domain.TenantID, _ string) { p.consumers.Notice(tenant) }})
	var err error
	p.reactors, err = reactor.New(reactor.Config{Births: b.store.GroupTables, Groups: mortal{p.groups, p}, Projections: p.catalog, Reactors: reactors, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.reactors.Declare(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.changes = reactor.NewChanges(reactor.ChangesConfig{
		Registry: b.store.Registry, Births: b.store.GroupTables, Events: b.store.Log, Appends: mortal{p.groups, p}, Groups: mortal{p.groups, p}, Projections: p.catalog, Lease: time.Second, Log: quiet,
		Notice: func(tenant domain.TenantID) { p.consumers.Notice(tenant) },
	})
	p.consumers = consume.New(consume.Config{
		Store: b.store, Sources: []consume.Source{p.reactors, p.changes}, PauseMin: 20 * time.Millisecond, PauseMax: 200 * time.Millisecond, Log: quiet,
	})
	ctx, cancel := context.WithCancel(context.Background())
	longer, end := context.WithCancel(context.Background())
	parts := []func(context.Context) error{
		p.runner.Run, p.rebuilds.Run, p.changes.Run, p.consumers.Run,
		func(ctx context.Context) error {
			return b.store.Listen(ctx, func(head domain.Head) {
				p.runner.Wake(head)
				p.groups.Wake(head)
				p.consumers.Wake(head)
			})
		},
		func(ctx context.Context) error {
			return b.store.ListenProjections(ctx, func() {
				p.runner.Refresh()
				p.rebuilds.Wake()
				p.changes.Refresh()
			})
		},
		func(ctx context.Context) error {
			return b.store.ListenGroups(ctx, func(tenant domain.TenantID, name string) {
				p.groups.Notice(tenant, name)
				p.consumers.Notice(tenant)
			})
		},
	}
	done := make(chan error, len(parts))
	for _, part := range parts {
		go func() { done <- part(ctx) }()
	}
	groups := make(chan error, 1)
	go func() { groups <- p.groups.Run(longer) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		for range parts {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		end()
		if err := <-groups; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return p, stop
}

// rebuild rebuilds a projection's documents, and waits for the end.
func (p *process) rebuild(t testing.TB, id domain.ProjectionID) {
	t.Helper()
	started, err := p.rebuilds.Start(t.Context(), id, rebuild.Request{By: "test"})
	must(t, err)
	until(t, "the rebuild of "+id.Name, func() bool {
		now, err := p.rebuilds.Get(t.Context(), id, started.ID)
		must(t, err)
		if now.State.Ended() && now.State != domain.RebuildSwapped {
			t.Fatalf("the rebuild of %s has ended: %+v", id.Name, now)
		}
		return now.State.Ended()
	})
}

// create creates a projection.
func (p *process) create(t testing.TB, owner domain.TenantID, definition domain.Definition) {
	t.Helper()
	if _, err := p.catalog.Create(t.Context(), owner, definition, "test"); err != nil {
		t.Fatal(err)
	}
}

// until waits until a condition holds.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s", what)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
