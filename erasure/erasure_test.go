package erasure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// house is a store, a driver, and what erases on a clock of the test's.
type house struct {
	store  *Tables
	driver drivers.Driver
	eraser *Eraser
	now    time.Time
}

func begin(t *testing.T, databases ...string) *house {
	t.Helper()
	db := pgtest.Database(t)
	quiet := slog.New(slog.DiscardHandler)
	h := &house{now: time.Unix(1e9, 0)}
	var err error
	h.store, err = openTables(t.Context(), pg.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention),
		MaxConns: 4, Log: quiet,
	})
	must(t, err)
	t.Cleanup(h.store.Close)
	driver, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments), MaxConns: 4, Log: quiet})
	must(t, err)
	t.Cleanup(driver.Close)
	h.driver = driver
	known := make(map[string]drivers.Driver)
	for _, name := range databases {
		known[name] = driver
	}
	h.eraser = New(Options{Tenants: h.store.tenantRows, Registry: h.store.Registry, Rows: h.store.Postgres, Drivers: known, Log: quiet, now: func() time.Time { return h.now },
		Keys: h.store.keys, Backups: 24 * time.Hour, Checkpoint: h.checkpoint})
	return h
}

// checkpoint is what was sealed of a log: its head, as a text.
func (h *house) checkpoint(ctx context.Context, log domain.TenantID) (string, error) {
	head, err := h.store.Head(ctx, log)
	if err == nil && head.Position == 0 {
		err = domain.Errorf(domain.CodeNotFound, "", "nothing is sealed")
	}
	return fmt.Sprintf("%s %d", log, head.Position), err
}

func (h *house) newTenant(t *testing.T) domain.TenantID {
	t.Helper()
	id := domain.NewTenantID()
	must(t, h.store.CreateTenant(t.Context(), domain.Tenant{ID: id, Name: id.String()}))
	_, err := h.store.Append(t.Context(), id, domain.Append{Streams: []domain.StreamAppend{{
		Stream: "order-1", Expected: domain.None, Events: []domain.NewEvent{{Type: "Placed", Data: json.RawMessage(`{}`)}},
	}}})
	must(t, err)
	return id
}

// builds makes a projection of an owner with three builds: a retired one, a live one, and one that is being made.
func (h *house) builds(t *testing.T, owner domain.TenantID) []domain.Build {
	t.Helper()
	ctx := t.Context()
	id := domain.ProjectionID{Owner: owner, Name: "same"}
	definition := domain.Definition{Name: id.Name, Database: "default", On: map[string]string{"*": "doc"}}
	next := func() int64 {
		number, err := h.store.NextBuild(ctx, owner)
		must(t, err)
		return number
	}
	must(t, h.store.CreateProjection(ctx, domain.Projection{ProjectionID: id, Definition: definition, Build: next()}, "test"))
	emptied := domain.Build{ProjectionID: id, Number: next(), Database: "default"}
	must(t, h.store.BeginReset(ctx, emptied, definition, "test"))
	must(t, h.store.ResetProjection(ctx, id, emptied.Number, time.Now().Add(time.Hour)))
	must(t, h.store.CreateRebuild(ctx, domain.Rebuild{ProjectionID: id, ID: domain.NewRebuildID(), Build: next(), Definition: definition}))
	builds, err := h.store.Builds(ctx, owner)
	must(t, err)
	if len(builds) != 3 {
		t.Fatalf("the builds are %+v", builds)
	}
	for _, build := range builds {
		must(t, h.driver.CreateTemporaryTable(ctx, build))
	}
	return builds
}

func (h *house) fill(t *testing.T, tenant domain.TenantID, builds ...domain.Build) {
	t.Helper()
	for _, build := range builds {
		must(t, h.driver.Save(t.Context(), build, tenant, drivers.Batch{To: 1, Upserts: []domain.Document{{ID: "order-1", Version: 1, Data: json.RawMessage(`{}`)}}}))
	}
}

// left is how many of the builds have a document or a checkpoint of the tenant.
func (h *house) left(t *testing.T, tenant domain.TenantID, builds ...domain.Build) (n int) {
	t.Helper()
	for _, build := range builds {
		documents, err := h.driver.Count(t.Context(), build, tenant, nil)
		must(t, err)
		checkpoint, err := h.driver.Checkpoint(t.Context(), build, tenant)
		must(t, err)
		if documents > 0 || checkpoint > 0 {
			n++
		}
	}
	return n
}

// mustHaveReceipt checks the receipt of a tenant that had one event.
func (h *house) mustHaveReceipt(t *testing.T, id domain.TenantID) {
	t.Helper()
	tenant, err := h.store.Tenant(t.Context(), id)
	must(t, err)
	keys, err := h.store.keys.Load(t.Context())
	must(t, err)
	text, err := keys.Open([]byte(tenant.Receipt))
	must(t, err)
	var receipt Receipt
	must(t, json.Unmarshal([]byte(text), &receipt))
	if receipt.Tenant != id.String() || receipt.Name != tenant.Name || receipt.Checkpoint != id.String()+" 1" ||
		!receipt.DeletedAt.Equal(h.now) || !receipt.BackupsTo.Equal(h.now.Add(24*time.Hour)) || len(receipt.Limits) == 0 {
		t.Errorf("the receipt is %+v", receipt)
	}
}

func TestErasingATenantRemovesEverything(t *testing.T) {
	t.Parallel()
	h := begin(t, "default")
	ctx := t.Context()
	gone, kept := h.newTenant(t), h.newTenant(t)
	shared := h.builds(t, domain.Everyone)
	builds := map[domain.TenantID][]domain.Build{}
	for _, tenant := range []domain.TenantID{gone, kept} {
		builds[tenant] = append(h.builds(t, tenant), shared...)
		h.fill(t, tenant, builds[tenant]...)
	}
	step := func(forward time.Duration) domain.TenantState {
		t.Helper()
		h.now = h.now.Add(forward)
		must(t, h.eraser.runOnce(ctx))
		tenant, err := h.store.Tenant(ctx, gone)
		must(t, err)
		return tenant.State
	}
	events := func(tenant domain.TenantID) int64 {
		t.Helper()
		head, err := h.store.Head(ctx, tenant)
		must(t, err)
		return head.Position
	}
	settle := h.eraser.options.Settle

	step(settle) // nobody is to be deleted
	if events(gone) != 1 || h.left(t, gone, builds[gone]...) != 6 {
		t.Fatal("something of an active tenant was erased")
	}
	must(t, h.store.SetTenantState(ctx, gone, domain.TenantDeleting))
	step(settle)
	step(settle - 1)
	if events(gone) != 1 {
		t.Error("the log was erased before requests under way could end")
	}
	step(1)
	if events(gone) != 0 || h.left(t, gone, builds[gone]...) != 6 {
		t.Errorf("the log is to be erased first; documents left in %d builds", h.left(t, gone, builds[gone]...))
	}
	step(settle - 1)
	if h.left(t, gone, builds[gone]...) != 6 {
		t.Error("documents were removed before saves under way could end")
	}
	if state := step(1); state != domain.TenantDeleted {
		t.Errorf("the tenant is %s", state)
	}
	h.mustHaveReceipt(t, gone)
	if n := h.left(t, gone, builds[gone]...); n != 0 {
		t.Errorf("%d builds still have something of the tenant", n)
	}
	if own, err := h.store.Builds(ctx, gone); err != nil || len(own) != 0 {
		t.Errorf("builds: %+v, %v", own, err)
	}
	if len(h.eraser.tenants) != 1 {
		t.Errorf("%d tenants are remembered", len(h.eraser.tenants))
	}
	step(0)
	if len(h.eraser.tenants) != 0 {
		t.Error("a tenant that is deleted is remembered")
	}
	if n := h.left(t, kept, builds[kept]...); n != 6 || events(kept) != 1 {
		t.Errorf("the other tenant has documents in %d builds", n)
	}

	// A process of a release without audit logs leaves that of a deleted tenant.
	for _, tenant := range []domain.TenantID{gone, kept} {
		_, err := h.store.Append(ctx, tenant.AuditLog(), domain.Append{Streams: []domain.StreamAppend{{
			Stream: "key-new", Expected: domain.Any, Events: []domain.NewEvent{{Type: "ActionDone", Data: json.RawMessage(`{}`)}},
		}}})
		must(t, err)
	}
	// Nor does one of a release without seals erase those.
	sealed := []domain.TenantID{gone, gone.AuditLog(), kept, kept.AuditLog()}
	under := func(log domain.TenantID, statement string, into ...any) {
		t.Helper()
		must(t, pg.Under(ctx, h.store.App, log, func(tx pgx.Tx) error { return tx.QueryRow(ctx, statement, log).Scan(into...) }))
	}
	for _, log := range sealed {
		under(log, "insert into sealed_logs (tenant_id, size, edge, checkpoint, sealed_at) values ($1, 1, '', '', now()) returning 1", new(int))
		under(log, "insert into erasures (tenant_id, erasure_id, subject_hash, what, reason, accept_loss, requested_by, state, until) "+
			"values ($1, gen_random_uuid(), '', 'data', 'x', false, '{}', 'running', 1) returning 1", new(int))
		under(log, "insert into seals (tenant_id, first_position, leaves, contents, salts) values ($1, 1, '', '', '') returning 1", new(int))
	}
	h.eraser.options.Left = func(context.Context) ([]domain.TenantID, error) { return sealed, nil }
	must(t, h.eraser.sweepLeft(ctx))
	for i, log := range sealed {
		var states, seals, erasures int
		under(log, "select count(*) from erasures e where e.tenant_id = $1", &erasures)
		under(log, "select count(*) from sealed_logs s where s.tenant_id = $1", &states)
		under(log, "select count(*) from seals s where s.tenant_id = $1", &seals)
		if want := i / 2; states != want || seals != want || erasures != want {
			t.Errorf("of log %d, %d and %d rows of seals and %d erasures are left; want %d", i, states, seals, erasures, want)
		}
	}
	h.eraser.options.Heads = h.store.Heads
	must(t, h.eraser.sweepAuditLogs(ctx))
	if !h.eraser.swept || events(gone.AuditLog()) != 0 || events(kept.AuditLog()) != 1 {
		t.Errorf("the audit logs have %d and %d events", events(gone.AuditLog()), events(kept.AuditLog()))
	}
}

// An eraser continues after a restart or an unreachable database: the tenant stays deleting.
func TestErasureContinuesAfterAFailure(t *testing.T) {
	t.Parallel()
	h := begin(t)
	ctx := t.Context()
	gone, empty := h.newTenant(t), h.newTenant(t)
	builds := h.builds(t, gone)
	h.fill(t, gone, builds...)
	for _, tenant := range []domain.TenantID{gone, empty} {
		must(t, h.store.SetTenantState(ctx, tenant, domain.TenantDeleting))
	}
	run := func() (err error) {
		for range 3 {
			err = errors.Join(err, h.eraser.runOnce(ctx))
			h.now = h.now.Add(h.eraser.options.Settle)
		}
		return err
	}
	state := func(tenant domain.TenantID) domain.TenantState {
		t.Helper()
		got, err := h.store.Tenant(ctx, tenant)
		must(t, err)
		return got.State
	}
	if err := run(); err == nil {
		t.Error("documents in an unknown database were passed over")
	}
	if state(gone) != domain.TenantDeleting || state(empty) != domain.TenantDeleted {
		t.Errorf("the tenant that cannot be erased is %s, the other one %s", state(gone), state(empty))
	}
	// With the database configured, by a process that knows nothing of what was done.
	h.eraser.options.Drivers = map[string]drivers.Driver{"default": h.driver}
	h.eraser = New(h.eraser.options)
	must(t, run())
	if state(gone) != domain.TenantDeleted || h.left(t, gone, builds...) != 0 {
		t.Errorf("the tenant is %s", state(gone))
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	h := begin(t, "default")
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.eraser.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	cancel()
	running.Wait()
}
