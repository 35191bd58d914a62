package projection_test

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
)

// interrupted is a driver that calls test hooks at the worst moments for a connection to break.
type interrupted struct {
	*postgres.Driver
	opening func()       // called when an append asks for a build's checkpoint, which is while it holds the log's row
	loaded  func()       // called when an append has loaded documents
	failing atomic.Int64 // how many saves are still to fail as if the connection broke
}

func (d *interrupted) Checkpoint(ctx context.Context, build domain.Build, tenant domain.TenantID) (int64, error) {
	if d.opening != nil {
		d.opening()
	}
	return d.Driver.Checkpoint(ctx, build, tenant)
}

func (d *interrupted) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error) {
	documents, err := d.Driver.Load(ctx, build, tenant, ids)
	if d.loaded != nil {
		d.loaded()
	}
	return documents, err
}

func (d *interrupted) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	if d.failing.Add(-1) >= 0 {
		return domain.Errorf(domain.CodeUnavailable, "", "the connection broke")
	}
	return d.Driver.Save(ctx, build, tenant, batch)
}

// CheckpointIn is called while the log's row is locked.
func (d *interrupted) CheckpointIn(build domain.Build, tenant domain.TenantID) (domain.Statement, error) {
	if d.opening != nil {
		d.opening()
	}
	return d.Driver.CheckpointIn(build, tenant)
}

// interruptedAppender opens process b, whose driver is interrupted, beside the faultless process a. cut ends the
// connection that holds the log's row.
func interruptedAppender(t *testing.T, db pgtest.DB) (a, b *appender, driver *interrupted, cut func()) {
	t.Helper()
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	driver = &interrupted{}
	a = newAppender(t, db, db.URL(migrations.RoleApp))
	b = newAppenderThrough(t, db, db.URL(migrations.RoleApp), func(d *postgres.Driver) drivers.Driver {
		driver.Driver = d
		return driver
	})
	return a, b, driver, func() {
		_, err := super.Exec(context.Background(),
			`select pg_terminate_backend(pid) from pg_stat_activity
				where datname = current_database() and usename = 'manifold_app' and state = 'idle in transaction'`)
		if err != nil {
			t.Error(err)
		}
	}
}

// earlierRelease opens a process whose appends fold nothing.
func earlierRelease(t *testing.T, db pgtest.DB) (add func(tenant domain.TenantID, text string)) {
	t.Helper()
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 4, Log: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return func(tenant domain.TenantID, text string) {
		t.Helper()
		_, err := s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{
			Stream: "x-2", Expected: domain.Any, Events: []domain.NewEvent{{Type: "Add", Data: json.RawMessage(text)}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (a *appender) mustAdd(t *testing.T, tenant domain.TenantID, texts ...string) {
	t.Helper()
	if _, err := a.add(tenant, texts...); err != nil {
		t.Error(err)
	}
}

func (a *appender) newTenant(t *testing.T) domain.TenantID {
	t.Helper()
	tenant := domain.NewTenantID()
	if err := a.store.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: "one"}); err != nil {
		t.Fatal(err)
	}
	return tenant
}

// A process holds the log's row at head H and asks for the checkpoint. Its connections break, another process appends,
// and the checkpoint that it then reads is beyond H. The build is healthy, so it must stay inline.
func TestABrokenConnectionEndsNoInlineBuild(t *testing.T) {
	t.Parallel()
	a, b, driver, cut := interruptedAppender(t, pgtest.Database(t))
	tenant := a.newTenant(t)
	p := a.project(t, domain.Everyone, counting)
	a.mustAdd(t, tenant, `{"k": "a", "n": 1}`)
	var once sync.Once
	cuts := 0
	driver.opening = func() {
		once.Do(func() {
			cuts++
			cut()
			a.mustAdd(t, tenant, `{"k": "a", "n": 1}`)
		})
	}
	if _, err := b.add(tenant, `{"k": "a", "n": "one"}`); !domain.IsCode(err, domain.CodeRefused) {
		t.Errorf("an event that cannot be folded is answered %v", err)
	}
	b.mustAdd(t, tenant, `?{"k": "a", "n": 2}`, `{"k": "a", "n": 1}`)
	a.wantInline(t, p, 1)
	if got, want := a.documents(t, p, tenant), "a@4 {\"n\": 3, \"last\": 4}\n"; got != want || cuts != 1 {
		t.Errorf("after %d cuts there is %s, want %s", cuts, got, want)
	}
}

// A build that an earlier release has left behind is caught up before the next append. Connections that break meanwhile
// say nothing about the build.
func TestCatchingUpAnInlineBuildIsRetriedAfterConnectionFailures(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	a, b, driver, _ := interruptedAppender(t, db)
	earlier := earlierRelease(t, db)
	tenant := a.newTenant(t)
	p := a.project(t, domain.Everyone, counting)
	a.mustAdd(t, tenant, `{"k": "a", "n": 1}`)
	earlier(tenant, `{"k": "a", "n": 10}`)
	driver.failing.Store(5)
	for driver.failing.Load() > 0 {
		if _, err := b.add(tenant, `{"k": "a", "n": "one"}`); err == nil {
			t.Fatal("an event that cannot be folded was appended")
		}
	}
	if _, err := b.add(tenant, `{"k": "a", "n": "one"}`); !domain.IsCode(err, domain.CodeRefused) {
		t.Errorf("an event that cannot be folded is answered %v", err)
	}
	b.mustAdd(t, tenant, `?{"k": "a", "n": 11}`)
	a.wantInline(t, p, 1)
}

// A refusal is computed from documents that were loaded while the log's row was held. If the connection that held it
// has broken meanwhile, another process may have appended, so the refusal is computed again.
func TestInlineRefusesOnlyAtTheLogsHead(t *testing.T) {
	t.Parallel()
	a, b, driver, cut := interruptedAppender(t, pgtest.Database(t))
	tenant := a.newTenant(t)
	a.project(t, domain.Everyone, counting)
	a.mustAdd(t, tenant, `{"k": "a", "n": 1}`)
	var once sync.Once
	driver.loaded = func() {
		once.Do(func() {
			cut()
			a.mustAdd(t, tenant, `{"k": "a", "n": 1}`)
		})
	}
	b.mustAdd(t, tenant, `?{"k": "a", "n": 2}`)
}
