package service_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/members"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
)

// announcing is a process as far as members know it.
type announcing struct {
	*tables.Tables
	id      domain.MemberID
	members *members.Members
	gate    chan struct{} // full: it gives no sign of life
	deafen  func()        // ends the connection by which its presence is seen

	mu   sync.Mutex
	seen []members.Member // by its last sign of life; nil: that failed
}

func (a *announcing) Announce(ctx context.Context, m members.Member, within time.Duration, tenants *[]domain.TenantID) ([]members.Member, error) {
	select {
	case a.gate <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-a.gate }()
	seen, err := a.Tables.Announce(ctx, m, within, tenants)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = seen
	return seen, err
}

// sees returns how its last sign of life has shown a member.
func (a *announcing) sees(id domain.MemberID) (seen members.Member, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.IndexFunc(a.seen, func(m members.Member) bool { return m.ID == id }); i >= 0 {
		return a.seen[i], true
	}
	return members.Member{}, false
}

// isAlive reports whether it considers another process alive.
func (a *announcing) isAlive(other *announcing) bool {
	return slices.ContainsFunc(a.members.Alive(), func(m members.Member) bool { return m.ID == other.id })
}

// listens has its presence seen.
func (a *announcing) listens(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.ListenKeys(ctx, func(domain.TenantID) {}) }()
	a.deafen = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(a.deafen)
}

func announce(t *testing.T, db pgtest.DB, name string) *announcing {
	t.Helper()
	a := &announcing{id: domain.NewMemberID(), gate: make(chan struct{}, 1)}
	var err error
	a.Tables, err = tables.Open(t.Context(), tables.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention),
		Member: a.id, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	a.listens(t)
	a.members = members.New(members.Config{Store: a, ID: a.id, Name: func() string { return name }, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.members.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return a
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); !holds(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("it does not come to pass: %s", what)
		}
	}
}

// PostgreSQL restarts. A process that lost its connections and announces itself later than others still counts as
// alive. Later it falls silent: others soon work for its tenants, but take over what it holds only when it has
// stepped down.
func TestProcessesOutliveARestartOfTheDatabase(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{})
	db := pgtest.Migrated(t, server)
	one, two := announce(t, db, "one"), announce(t, db, "two")
	connected := func() bool {
		seen, ok := one.sees(two.id)
		return ok && seen.Connected && one.isAlive(two)
	}
	await(t, "the connection of the second process is seen", connected)

	two.gate <- struct{}{}
	two.deafen()
	server.Kill()
	await(t, "the first process cannot announce itself", func() bool {
		_, ok := one.sees(one.id)
		return !ok
	})
	one.gate <- struct{}{}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool := db.Pool(t, pgtest.RoleSuperuser, 1)
	if _, err := pool.Exec(t.Context(), "update manifold.members set alive_at = now() - interval '3 seconds' where member_id = $1", two.id); err != nil {
		t.Fatal(err)
	}
	<-one.gate
	await(t, "the first process announces itself again", func() bool {
		_, ok := one.sees(one.id)
		return ok && len(one.members.Alive()) > 0
	})
	if !one.isAlive(two) || one.members.Died(two.id) {
		t.Error("the second process is taken for dead right after the restart")
	}
	<-two.gate
	two.listens(t)
	await(t, "the connection of the second process is seen again", connected)

	two.gate <- struct{}{}
	two.deafen()
	await(t, "others work for its tenants", func() bool { return !one.isAlive(two) })
	if len(two.members.Alive()) > 0 && one.members.Died(two.id) {
		t.Error("what a process holds is given away before it has stepped down")
	}
	await(t, "what it holds is given away", func() bool { return one.members.Died(two.id) })
	if len(two.members.Alive()) > 0 {
		t.Error("what a process holds is given away before it has stepped down")
	}
}
