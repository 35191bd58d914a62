package report_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/delivery/report"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

// bench is a separate database for a test, with one process on it.
type bench struct {
	db       pgtest.DB
	store    *tables.Tables
	catalog  *projection.Catalog
	runner   *projection.Runner
	groups   *group.Groups
	config   report.Config
	reporter *report.Reporter

	// append replaces the appends of reports.
	append func(ctx context.Context, tenant domain.TenantID, request domain.Append) (domain.Appended, error)
}

func newBench(t *testing.T) *bench {
	t.Helper()
	s, db := tablestest.Open(t)
	d, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments), MaxConns: 4, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	b := &bench{db: db, store: s, append: s.Append}
	projections := projection.Store{Log: s.Log, Registry: s.Registry, Tenants: s.TenantTables}
	byName, progress := map[string]drivers.Driver{"default": d}, projection.NewProgress()
	b.catalog = projection.NewCatalog(projection.CatalogConfig{Store: projections, Drivers: byName, Progress: progress, Log: quiet})
	b.runner = projection.NewRunner(projection.RunnerConfig{
		Store: projections, Drivers: byName, Progress: progress, Poll: 100 * time.Millisecond, Log: quiet,
		Retries: domain.RetrySchedule{First: 2 * time.Millisecond, Longest: 10 * time.Millisecond},
	})
	b.groups = group.New(group.Config{Store: s.GroupTables, Events: s.Log, Log: quiet})
	b.config = report.Config{
		Store: s.ReportTables, Events: s.Log, Groups: s.GroupTables, Webhooks: s.WebhookTables, Registry: s.Registry, Projections: b.catalog, Busy: time.Nanosecond, Idle: time.Nanosecond, Slow: time.Nanosecond, Log: quiet,
		Append: func(ctx context.Context, tenant domain.TenantID, request domain.Append) (domain.Appended, error) {
			return b.append(ctx, tenant, request)
		},
	}
	b.reporter = report.New(b.config)
	b.run(t, b.groups.Run)
	b.run(t, b.reporter.Run)
	b.run(t, func(ctx context.Context) error { return s.Listen(ctx, b.groups.Wake) })
	return b
}

// run runs a part of the process until the test ends.
func (b *bench) run(t *testing.T, part func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- part(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// follow makes the process follow projections.
func (b *bench) follow(t *testing.T) {
	b.run(t, b.runner.Run)
	b.run(t, func(ctx context.Context) error { return b.store.Listen(ctx, b.runner.Wake) })
	b.run(t, func(ctx context.Context) error { return b.store.ListenProjections(ctx, b.runner.Refresh) })
	b.run(t, func(ctx context.Context) error { return b.store.ListenRetries(ctx, b.runner.Retry) })
}

// tenant returns a new tenant with reports.
func (b *bench) tenant(t *testing.T) domain.TenantID {
	t.Helper()
	tenant := tablestest.NewTenant(t, b.store)
	if _, err := b.reporter.Put(t.Context(), tenant, true, 0); err != nil {
		t.Fatal(err)
	}
	return tenant
}

// look makes the reporter look at a tenant's rows until nothing is left to report.
func (b *bench) look(t testing.TB, tenant domain.TenantID) error {
	t.Helper()
	for before := -1; ; {
		consumers, err := b.reporter.Consumers(context.Background(), tenant)
		if err != nil || len(consumers) != 1 {
			return errors.Join(err, errors.New("the tenant has no reports, as far as the reporter knows"))
		}
		if _, err := consumers[0].Run(context.Background()); err != nil {
			return err
		}
		now := len(b.reports(t, tenant))
		if now == before {
			return nil
		}
		before = now
	}
}

// mustLook waits until the reporter knows the tenant, and looks.
func (b *bench) mustLook(t *testing.T, tenant domain.TenantID) {
	t.Helper()
	await(t, func() bool {
		consumers, err := b.reporter.Consumers(t.Context(), tenant)
		return err == nil && len(consumers) == 1
	})
	if err := b.look(t, tenant); err != nil {
		t.Fatal(err)
	}
}

// reports returns the reports in a tenant's log.
func (b *bench) reports(t testing.TB, tenant domain.TenantID) []domain.Event {
	t.Helper()
	events, err := b.store.ReadLog(context.Background(), tenant, domain.LogQuery{From: 1, Limit: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(events, func(e domain.Event) bool { return !domain.IsReport(e.Stream) })
}

// summary returns the streams and types of reports.
func summary(reports []domain.Event) string {
	var all []string
	for _, e := range reports {
		all = append(all, e.Stream+" "+e.Type)
	}
	return strings.Join(all, ", ")
}

// add appends an event, and returns its position.
func (b *bench) add(t testing.TB, tenant domain.TenantID, stream, data string) int64 {
	t.Helper()
	appended, err := b.store.Append(context.Background(), tenant, domain.Append{Streams: []domain.StreamAppend{{
		Stream: stream, Expected: domain.Any, Events: []domain.NewEvent{{Type: "Added", Data: json.RawMessage(data)}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return appended.Position
}

// age makes a tenant's events older.
func (b *bench) age(t *testing.T, tenant domain.TenantID, by time.Duration) {
	t.Helper()
	_, err := b.db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(),
		"update manifold.events set created_at = (created_at at time zone 'utc' - $2::float8 * interval '1 second') at time zone 'utc' where tenant_id = $1", tenant, by.Seconds())
	tablestest.Must(t, err)
}

// park receives the group's events until there is none, and parks each.
func (b *bench) park(t testing.TB, tenant domain.TenantID, name string) (parked int) {
	t.Helper()
	for {
		deliveries, err := b.groups.Receive(context.Background(), tenant, name, group.Receive{Batch: 100, Search: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if len(deliveries) == 0 {
			return parked
		}
		attempts := make([]domain.Attempt, len(deliveries))
		for i := range deliveries {
			attempts[i] = domain.AttemptOf(&deliveries[i])
		}
		if _, err := b.groups.Nack(context.Background(), tenant, name, attempts, domain.Nack{Action: domain.NackPark, Reason: "the mail server said no"}); err != nil {
			t.Fatal(err)
		}
		parked += len(deliveries)
	}
}

func await(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(2 * time.Minute); !holds(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("what is awaited does not happen")
		}
	}
}
