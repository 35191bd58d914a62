package retention

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// failer is a test, or one of rapid's.
type failer interface {
	Helper()
	Fatal(args ...any)
}

func must(t failer, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bench is a store, and a look past it.
type bench struct {
	db    pgtest.DB
	store *Tables
	super *pgxpool.Pool
}

func newBench(t *testing.T) *bench {
	t.Helper()
	db := pgtest.Database(t)
	b := &bench{db: db, super: db.Pool(t, pgtest.RoleSuperuser, 2)}
	b.store = b.open(t, directly)
	return b
}

func directly(_ testing.TB, db pgtest.DB, role migrations.Role) string { return db.URL(role) }

// open opens the database, as another process does.
func (b *bench) open(t *testing.T, url func(testing.TB, pgtest.DB, migrations.Role) string) *Tables {
	t.Helper()
	s, err := openTables(t.Context(), pg.Config{
		AppURL: url(t, b.db, migrations.RoleApp), SystemURL: url(t, b.db, migrations.RoleSystem), RetentionURL: url(t, b.db, migrations.RoleRetention),
		MaxConns: 8, Log: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

func (b *bench) tenant(t failer) domain.TenantID {
	t.Helper()
	id := domain.NewTenantID()
	must(t, b.store.CreateTenant(context.Background(), domain.Tenant{ID: id, Name: id.String()}))
	return id
}

// retention works at once, without pauses, and leaves nothing for its youth.
func (b *bench) retention(s *Tables, holders ...Holder) *Retention {
	if s == nil {
		s = b.store
	}
	return New(Config{
		Store: s.Postgres, Holders: append([]Holder{b.store}, holders...), Owns: func(domain.TenantID) bool { return true },
		Log: slog.New(slog.DiscardHandler), Grace: -1, Share: 1, Slice: 7,
	})
}

func to(stream string, expected domain.Expected, n int) domain.Append {
	events := make([]domain.NewEvent, n)
	for i := range events {
		events[i] = domain.NewEvent{Type: "Counted", Data: json.RawMessage(fmt.Sprintf(`{"n": %d}`, i+1))}
	}
	return domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: expected, Events: events}}}
}

func (b *bench) append(t failer, tenant domain.TenantID, stream string, n int) domain.Appended {
	t.Helper()
	appended, err := b.store.Append(context.Background(), tenant, to(stream, domain.Any, n))
	must(t, err)
	return appended
}

func (b *bench) put(t failer, tenant domain.TenantID, policy Policy) {
	t.Helper()
	_, _, err := b.store.PutRetentionPolicy(context.Background(), tenant, policy)
	must(t, err)
}

// left are the positions of a category's events.
func (b *bench) left(t failer, tenant domain.TenantID, category string) []int64 {
	t.Helper()
	events, err := b.store.ReadLog(context.Background(), tenant, domain.LogQuery{Limit: 1 << 20, Categories: []string{category}})
	must(t, err)
	positions := []int64{}
	for i := range events {
		positions = append(positions, events[i].Position)
	}
	return positions
}

func (b *bench) status(t failer, tenant domain.TenantID, category string) Status {
	t.Helper()
	status, err := b.store.RetentionPolicy(context.Background(), tenant, category)
	must(t, err)
	return status
}

// exec runs a statement of straight SQL.
func (b *bench) exec(t failer, sql string, args ...any) {
	t.Helper()
	_, err := b.super.Exec(context.Background(), sql, args...)
	must(t, err)
}

// runAll runs a policy to its end.
func runAll(t failer, r *Retention, tenant domain.TenantID, category string) {
	t.Helper()
	for {
		out, err := r.runOnce(context.Background(), tenant, category)
		must(t, err)
		if !out.more {
			return
		}
	}
}

// stub is a holder that holds what a test says.
type stub struct {
	mu    sync.Mutex
	holds []domain.RetentionHold
}

func (h *stub) set(holds ...domain.RetentionHold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds = holds
}

func (h *stub) RetentionHolds(context.Context, domain.TenantID, string) ([]domain.RetentionHold, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]domain.RetentionHold{}, h.holds...), nil
}

// process is another process, whose network to the database calls a test.
type process struct {
	*Tables
	network *pgtest.Network
}

func (b *bench) process(t *testing.T) *process {
	t.Helper()
	network := pgtest.NewNetwork(t, b.db)
	return &process{b.open(t, network.URL), network}
}

// afterAnnouncement calls do when the process has announced how far it will remove events.
func (p *process) afterAnnouncement(do func()) {
	p.network.On(pgtest.Fault{Statement: "insert into retention_floors as f", Ended: func(*pgtest.Statement) bool {
		do()
		return true
	}})
}

// beforeSlice calls do when the process is about to begin the transaction of a slice, with the slice's number. The
// first one finds that nothing is announced.
func (p *process) beforeSlice(do func(number int)) {
	number := 0
	p.network.Before("begin isolation level repeatable read", func() bool {
		number++
		do(number)
		return true
	})
}

// kill ends the process as the database sees it.
func (p *process) kill() { p.network.Cut() }
