package eventlog

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
)

// However many readings of a tenant are under way, the database works on a few of them, and appends and the readings of
// others find connections.
func TestReadersLeaveConnectionsToOthers(t *testing.T) {
	t.Parallel()
	const conns = 8
	db := pgtest.Database(t)
	s, err := openLog(t.Context(), pg.Config{AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: conns}, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	event := func(tenant domain.TenantID) error {
		_, err := s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: "order-1", Expected: domain.Any, Events: []domain.NewEvent{{Type: "A", Data: []byte("1")}}}}})
		return err
	}
	greedy := []domain.TenantID{domain.NewTenantID(), domain.NewTenantID(), domain.NewTenantID()}
	modest := domain.NewTenantID()
	for _, tenant := range append(greedy, modest) {
		if err := event(tenant); err != nil {
			t.Fatal(err)
		}
	}
	// What is known of streams cannot be read for now.
	super := db.Pool(t, pgtest.RoleSuperuser, 2)
	lock, err := super.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), "lock table manifold.stream_floors in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 100)
	read := func(tenant domain.TenantID, times int) {
		for range times {
			go func() {
				_, err := s.StreamInfo(ctx, tenant, "order-1") // which looks at stream_floors, too
				ended <- err
			}()
		}
	}
	working := func() (n int) {
		if err := super.QueryRow(t.Context(), "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%stream_floors%'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	want := func(what string, n int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); working() != n; {
			if time.Now().After(deadline) {
				t.Fatalf("%s: the database works on %d readings, want %d", what, working(), n)
			}
		}
	}
	read(greedy[0], 24)
	want("one tenant reads", conns/4)
	read(greedy[1], 24)
	want("two tenants read", conns/2)
	read(greedy[2], 24)
	if err := event(modest); err != nil {
		t.Errorf("an append meanwhile: %v", err)
	}
	if n := working(); n != conns/2 {
		t.Errorf("the database works on %d readings", n)
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 72 {
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if _, err := s.LogSlice(t.Context(), modest, domain.LogQuery{From: 1, Limit: 10}); err != nil {
		t.Error(err)
	}
}
