package store_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/store"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// openStore opens a store on a database of the test's own.
func openStore(t *testing.T) (*store.Store, pgtest.DB) {
	t.Helper()
	db := pgtest.Database(t)
	return openAgain(t, db), db
}

// openAgain opens one more store on a database, as another process has it.
func openAgain(t *testing.T, db pgtest.DB) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{
		AppURL:       db.URL(migrations.RoleApp),
		SystemURL:    db.URL(migrations.RoleSystem),
		RetentionURL: db.URL(migrations.RoleRetention),
		MaxConns:     8,
		Log:          slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// newTenant creates an active tenant with a unique name.
func newTenant(t *testing.T, s *store.Store) domain.TenantID {
	t.Helper()
	id := domain.NewTenantID()
	if err := s.CreateTenant(t.Context(), domain.Tenant{ID: id, Name: id.String()}); err != nil {
		t.Fatal(err)
	}
	return id
}

// wantCode fails the test unless err is a *domain.Error with the code.
func wantCode(t *testing.T, err error, code domain.Code) {
	t.Helper()
	if got := codeOf(err); got != code {
		t.Fatalf("got the error %v with code %q; want code %q", err, got, code)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patience is how long a test waits for a signal that must come.
const patience = time.Minute

// receive waits for a signal.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case got := <-from:
		return got
	case <-ctx.Done():
		t.Fatalf("waited %s for %s", patience, what)
		panic("not reached")
	}
}
