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
	b.store = b.open(t)
	return b
}

// open opens the database once more, as another process does.
func (b *bench) open(t *testing.T) *Tables {
	t.Helper()
	s, err := openTables(t.Context(), pg.Config{
		AppURL: b.db.URL(migrations.RoleApp), SystemURL: b.db.URL(migrations.RoleSystem), RetentionURL: b.db.URL(migrations.RoleRetention),
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
func (b *bench) retention(s Store, holders ...Holder) *Retention {
	if s == nil {
		s = b.store
	}
	return New(Config{
		Store: s, Holders: append([]Holder{b.store}, holders...), Owns: func(domain.TenantID) bool { return true },
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

func (b *bench) put(t failer, tenant domain.TenantID, policy domain.RetentionPolicy) {
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

func (b *bench) status(t failer, tenant domain.TenantID, category string) domain.RetentionStatus {
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

// hooked is a store that tells a test what is about to happen.
type hooked struct {
	*Tables
	announced func() error // behind an announcement
	removing  func() error // before a slice
	ending    func() error // before a run's end is kept
}

func (h *hooked) AnnounceRetention(ctx context.Context, tenant domain.TenantID, category string, revision int64, run domain.RetentionRunID, upTo int64) (int64, error) {
	announced, err := h.Tables.AnnounceRetention(ctx, tenant, category, revision, run, upTo)
	if err == nil && h.announced != nil {
		err = h.announced()
	}
	return announced, err
}

func (h *hooked) RemoveRetained(ctx context.Context, tenant domain.TenantID, step Step) (Slice, error) {
	if h.removing != nil {
		if err := h.removing(); err != nil {
			return Slice{}, err
		}
	}
	return h.Tables.RemoveRetained(ctx, tenant, step)
}

func (h *hooked) EndRetention(ctx context.Context, tenant domain.TenantID, end End) (int64, error) {
	if h.ending != nil {
		if err := h.ending(); err != nil {
			return 0, err
		}
	}
	return h.Tables.EndRetention(ctx, tenant, end)
}
