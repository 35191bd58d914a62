package rebuild_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/rebuild"
	"github.com/manifold-es/manifold/tables"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

// service is what one process runs, on the test's own database.
type service struct {
	db       pgtest.DB
	store    *tables.Tables
	drivers  map[string]drivers.Driver
	catalog  *projection.Catalog
	runner   *projection.Runner
	rebuilds *rebuild.Rebuilds
}

// newService opens a database, and sets up a process on it. Documents are in "default" and, in a separate database, in
// "elsewhere".
func newService(t *testing.T) *service {
	t.Helper()
	db := pgtest.Database(t)
	s := openStore(t, db.URL)
	t.Cleanup(s.Close)
	byName := make(map[string]drivers.Driver)
	for name, on := range map[string]pgtest.DB{"default": db, "elsewhere": pgtest.Database(t)} {
		d := openDriver(t, on.URL(migrations.RoleDocuments))
		t.Cleanup(d.Close)
		byName[name] = d
	}
	v := &service{db: db, store: s, drivers: byName}
	return v.process(rebuild.Config{})
}

// openStore opens Manifold's own database, at a URL for each role. The caller must close it.
func openStore(t *testing.T, url func(migrations.Role) string) *tables.Tables {
	t.Helper()
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: url(migrations.RoleApp), SystemURL: url(migrations.RoleSystem), RetentionURL: url(migrations.RoleRetention),
		MaxConns: 8, Log: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// openDriver opens a database of documents. The caller must close it.
func openDriver(t *testing.T, url string) *postgres.Driver {
	t.Helper()
	d, err := postgres.Open(t.Context(), postgres.Config{URL: url, MaxConns: 8, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// storeOf returns the part of Manifold's own database that rebuilds use.
func storeOf(s *tables.Tables) projection.Store {
	return projection.Store{Log: s.Log, Registry: s.Registry, Tenants: s.TenantTables}
}

// process sets up another process on the same database. Zero fields of config get the test's defaults.
func (v *service) process(config rebuild.Config) *service {
	p := *v
	if config.Drivers != nil {
		p.drivers = config.Drivers
	}
	progress := projection.NewProgress()
	keep := 10 * time.Minute
	if config.Keep == 0 {
		config.Keep = keep
	}
	p.catalog = projection.NewCatalog(projection.CatalogConfig{
		Store: storeOf(v.store), Drivers: p.drivers, Progress: progress, Keep: config.Keep, Log: quiet,
	})
	p.runner = projection.NewRunner(projection.RunnerConfig{
		Store: storeOf(v.store), Drivers: p.drivers, Progress: progress, Poll: 100 * time.Millisecond, Log: quiet,
	})
	config.Store = storeOf(v.store)
	if config.Poll == 0 {
		config.Poll = 100 * time.Millisecond
	}
	config.Drivers, config.Catalog, config.Log = p.drivers, p.catalog, quiet
	p.rebuilds = rebuild.New(config)
	return &p
}

// follow runs the process's runner, work its rebuilds, until the test ends or what they return is called.
func (v *service) follow(t *testing.T) (stop func()) {
	return run(t,
		v.runner.Run,
		func(ctx context.Context) error { return v.store.Listen(ctx, v.runner.Wake) },
		func(ctx context.Context) error { return v.store.ListenProjections(ctx, v.runner.Refresh) },
	)
}

func (v *service) work(t *testing.T) (stop func()) {
	return run(t,
		v.rebuilds.Run,
		func(ctx context.Context) error { return v.store.ListenProjections(ctx, v.rebuilds.Wake) },
	)
}

func run(t *testing.T, parts ...func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, len(parts))
	for _, part := range parts {
		go func() { done <- part(ctx) }()
	}
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
	}
	t.Cleanup(stop)
	return stop
}

func (v *service) tenant(t *testing.T) domain.TenantID {
	t.Helper()
	id := domain.NewTenantID()
	if err := v.store.CreateTenant(t.Context(), domain.Tenant{ID: id, Name: id.String()}); err != nil {
		t.Fatal(err)
	}
	return id
}

// append appends n events to a tenant's log: additions to one of ten keys. The position determines the key and the
// amount.
func (v *service) append(t *testing.T, tenant domain.TenantID, n int) (last int64) {
	t.Helper()
	for n > 0 {
		some := domain.StreamAppend{Stream: "x-1", Expected: domain.Any}
		for ; n > 0 && len(some.Events) < 500; n-- {
			some.Events = append(some.Events, domain.NewEvent{Type: "Add", Data: json.RawMessage(fmt.Sprintf(`{"k": "key %d", "n": %d}`, n%10, n%7))})
		}
		appended, err := v.store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{some}})
		if err != nil {
			t.Error(err)
			return 0
		}
		last = appended.Position
	}
	return last
}

// sums adds up by key; times distinguishes definitions.
func sums(times int) domain.Definition {
	return folding.WithDefaults(domain.Definition{
		Name: "sums", Key: "event.data.k",
		On: map[string]string{"Add": fmt.Sprintf("{'times': %d, 'sum': doc.?sum.orValue(0) + %d * event.data.n, 'events': doc.?events.orValue(0) + 1}", times, times)},
	})
}

type sum struct{ Times, Sum, Events, Version int64 }

// want computes the documents from the log, with code that is independent of the tested packages.
func (v *service) want(t *testing.T, tenant domain.TenantID, times int64, upTo int64) map[string]sum {
	t.Helper()
	events, err := v.store.ReadLog(t.Context(), tenant, domain.LogQuery{From: 1, To: upTo, Limit: 10_000_000})
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]sum)
	for _, event := range events {
		var data struct {
			K string
			N int64
		}
		if err := json.Unmarshal(event.Data, &data); err != nil {
			t.Fatal(err)
		}
		s := all[data.K]
		all[data.K] = sum{times, s.Sum + times*data.N, s.Events + 1, event.Position}
	}
	return all
}

// got reads the live documents, with at least minPosition folded.
func (v *service) got(t *testing.T, tenant domain.TenantID, minPosition int64) map[string]sum {
	t.Helper()
	page, err := v.catalog.Documents(t.Context(), tenant, "sums", projection.DocumentsQuery{PageSize: 1000, Freshness: projection.Freshness{MinPosition: minPosition, Wait: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, page.Documents)
}

func decode(t *testing.T, documents []domain.Document) map[string]sum {
	t.Helper()
	all := make(map[string]sum)
	for _, document := range documents {
		var s sum
		if err := json.Unmarshal(document.Data, &s); err != nil {
			t.Fatal(err)
		}
		s.Version = document.Version
		all[document.ID] = s
	}
	return all
}

func (v *service) mustBe(t *testing.T, tenant domain.TenantID, times int64) {
	t.Helper()
	head, err := v.store.Head(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	got, want := v.got(t, tenant, head.Position), v.want(t, tenant, times, head.Position)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("documents are\n%v\nwant\n%v", got, want)
	}
}

// ended waits for a rebuild's end.
func (v *service) ended(t *testing.T, r domain.Rebuild) domain.Rebuild {
	t.Helper()
	changed := make(chan struct{}, 1)
	stop := run(t, func(ctx context.Context) error {
		return v.store.ListenProjections(ctx, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	})
	defer stop()
	late := time.After(time.Minute)
	for {
		now, err := v.rebuilds.Get(t.Context(), r.ProjectionID, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if now.State.Ended() {
			return now
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("the rebuild has not ended: %+v", now)
		}
	}
}
