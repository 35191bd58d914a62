package reactor_test

import (
	"context"
	"encoding/json"
	"fmt"
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
	"github.com/manifold-es/manifold/tables/tablestest"
	"github.com/manifold-es/manifold/upcasting"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

// bench is a separate database for a test, with what all its processes share.
type bench struct {
	db     pgtest.DB
	store  *tables.Tables
	folds  *inlineFolds
	inline *projection.Inline

	failAppends atomic.Int32 // how many appends of changes fail
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
	b := &bench{db: pgtest.Database(t), folds: &inlineFolds{}}
	var d *postgres.Driver
	b.store, d = b.open(t, b.db.URL)
	upcasters, err := upcasting.NewBySystem(b.store.Registry)
	if err != nil {
		t.Fatal(err)
	}
	b.inline = projection.NewInline(projection.InlineConfig{Store: projection.Store{Log: b.store.Log, Registry: b.store.Registry, Tenants: b.store.TenantTables}, Drivers: map[string]drivers.Driver{"default": d}, Upcasters: upcasters, Log: quiet})
	b.folds.of = b.inline
	return b
}

// open opens the tables and documents at a URL for each role, until the test ends.
func (b *bench) open(t testing.TB, url func(migrations.Role) string) (*tables.Tables, *postgres.Driver) {
	t.Helper()
	s := tablestest.OpenWith(t, b.db, func(c *tables.Config) {
		c.AppURL, c.SystemURL, c.RetentionURL = url(migrations.RoleApp), url(migrations.RoleSystem), url(migrations.RoleRetention)
		c.MaxConns, c.Inline, c.Log = 8, b.folds, quiet
	})
	d, err := postgres.Open(t.Context(), postgres.Config{URL: url(migrations.RoleDocuments), MaxConns: 8, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return s, d
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
	network   *pgtest.Network // the process dies where it is cut
	catalog   *projection.Catalog
	runner    *projection.Runner
	groups    *group.Groups
	reactors  *reactor.Reactors
	changes   *reactor.Changes
	consumers *consume.Dispatcher
	rebuilds  *rebuild.Rebuilds
}

// failingAppender fails as often as fails says, as a client does whose connection another goroutine has given up.
type failingAppender struct {
	*eventlog.Log
	fails *atomic.Int32
}

func (f *failingAppender) Append(ctx context.Context, tenant domain.TenantID, a domain.Append) (domain.Appended, error) {
	if f.fails.Add(-1) >= 0 {
		return domain.Appended{}, fmt.Errorf("dial: %w", context.Canceled)
	}
	return f.Log.Append(ctx, tenant, a)
}

// start runs a process until the test ends or stop is called.
func (b *bench) start(t testing.TB, reactors ...reactor.Reactor) (p *process, stop func()) {
	t.Helper()
	p = &process{bench: b, network: pgtest.NewNetwork(t, b.db)}
	s, d := b.open(t, func(role migrations.Role) string { return p.network.URL(t, b.db, role) })
	byName := map[string]drivers.Driver{"default": d}
	progress := projection.NewProgress()
	p.catalog = projection.NewCatalog(projection.CatalogConfig{Store: projection.Store{Log: s.Log, Registry: s.Registry, Tenants: s.TenantTables}, Drivers: byName, Progress: progress, LogDatabase: "default", Log: quiet})
	p.runner = projection.NewRunner(projection.RunnerConfig{
		Store: projection.Store{Log: s.Log, Registry: s.Registry, Tenants: s.TenantTables}, Drivers: byName, Progress: progress, Inline: b.inline, Poll: 100 * time.Millisecond, Log: quiet,
	})
	p.rebuilds = rebuild.New(rebuild.Config{
		Store:   projection.Store{Log: s.Log, Registry: s.Registry, Tenants: s.TenantTables},
		Drivers: byName, Catalog: p.catalog, Poll: 100 * time.Millisecond, Keep: 10 * time.Minute, Log: quiet,
	})
	p.groups = group.New(group.Config{Store: s.GroupTables, Events: s.Log, Log: quiet, Changed: func(tenant domain.TenantID, _ string) { p.consumers.Notice(tenant) }})
	var err error
	p.reactors, err = reactor.New(reactor.Config{Births: s.GroupTables, Claims: s.WebhookTables, Groups: p.groups, Projections: p.catalog, Reactors: reactors, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.reactors.Declare(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.changes = reactor.NewChanges(reactor.ChangesConfig{
		Registry: s.Registry, Births: s.GroupTables, Events: s.Log, Appends: &failingAppender{Log: s.Log, fails: &b.failAppends}, Groups: p.groups, Projections: p.catalog, Lease: time.Second, Log: quiet,
		Notice: func(tenant domain.TenantID) { p.consumers.Notice(tenant) },
	})
	p.consumers = consume.New(consume.Config{
		Heads: s.Heads, Sources: []consume.Source{p.reactors, p.changes}, PauseMin: 20 * time.Millisecond, PauseMax: 200 * time.Millisecond, Log: quiet,
	})
	ctx, cancel := context.WithCancel(context.Background())
	longer, end := context.WithCancel(context.Background())
	parts := []func(context.Context) error{
		p.runner.Run, p.rebuilds.Run, p.changes.Run, p.consumers.Run,
		func(ctx context.Context) error {
			return s.Listen(ctx, func(head domain.Head) {
				p.runner.Wake(head)
				p.groups.Wake(head)
				p.consumers.Wake(head)
			})
		},
		func(ctx context.Context) error {
			return s.ListenProjections(ctx, func() {
				p.runner.Refresh()
				p.rebuilds.Wake()
				p.changes.Refresh()
			})
		},
		func(ctx context.Context) error {
			return s.ListenGroups(ctx, func(tenant domain.TenantID, name string) {
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
