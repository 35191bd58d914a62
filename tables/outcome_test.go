package tables_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// openThrough opens a store whose app login goes through the network.
func openThrough(t *testing.T, db pgtest.DB, network *pgtest.Network, change func(*tables.Config)) *tables.Tables {
	t.Helper()
	return tablestest.OpenWith(t, db, func(c *tables.Config) {
		c.AppURL, c.MaxConns = network.URL(t, db, migrations.RoleApp), 8
		if change != nil {
			change(c)
		}
	})
}

// nth is true the n-th time.
func nth(n int64) func() bool {
	var times atomic.Int64
	return func() bool { return times.Add(1) == n }
}

func TestLostConnectionAtCommitAppendsOnce(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func(string, func() bool) pgtest.Fault{"before": pgtest.BeforeCommit, "behind": pgtest.AfterCommit} {
		for _, ids := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db := pgtest.Database(t)
				network := pgtest.NewNetwork(t, db)
				network.On(how("manifold_insert_event", nth(2)))
				s := openThrough(t, db, network, nil)
				tenant := domain.NewTenantID()
				tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 1))
				a := tablestest.Counted("order-1", 1, 3)
				if ids {
					tablestest.WithIDs(a)
				}
				got := tablestest.Append(t, s, tenant, a)
				if got.Position != 4 || got.Duplicate || got.Streams[0].Version != 4 {
					t.Errorf("answered %+v", got)
				}
				tablestest.Append(t, s, tenant, tablestest.Counted("order-1", 4, 1))
				events := tablestest.WholeLog(t, s, tenant)
				if len(events) != 5 {
					t.Fatalf("there are %d events, want 5", len(events))
				}
				for i, e := range got.Streams[0].Events {
					if events[1+i].ID != e.ID || e.Position != int64(2+i) {
						t.Errorf("event %d was answered as %+v, and is %+v", i, e, events[1+i])
					}
				}
			})
		}
	}
}

// Where batches follow one another on a connection, all that were under way are found again.
func TestLostConnectionsUnderLoadAppendOnce(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func(string, func() bool) pgtest.Fault{"before": pgtest.BeforeCommit, "behind": pgtest.AfterCommit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Database(t)
			var commits atomic.Int64
			network := pgtest.NewNetwork(t, db)
			network.On(how("manifold_insert_event", func() bool { return commits.Add(1)%5 == 0 }))
			s := openThrough(t, db, network, nil)
			tenant := domain.NewTenantID()
			const clients, rounds = 500, 6
			var wg sync.WaitGroup
			for c := range clients {
				wg.Go(func() {
					for version := range rounds {
						got, err := s.Append(t.Context(), tenant, tablestest.Counted(fmt.Sprintf("order-%d", c), domain.Expected(version), 1))
						if err != nil || got.Duplicate || got.Streams[0].Version != int64(version+1) {
							t.Errorf("client %d at version %d is answered %+v, %v", c, version, got, err)
							return
						}
					}
				})
			}
			wg.Wait()
			if events := tablestest.WholeLog(t, s, tenant); len(events) != clients*rounds {
				t.Errorf("there are %d events, want %d", len(events), clients*rounds)
			}
		})
	}
}

// The connection is lost while the transaction is open, and the database gets the commit only later: whoever looks
// before that sees nothing.
func TestLostTransactionIsWaitedFor(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	network := pgtest.NewNetwork(t, db)
	sent, written, goOn, second := make(chan struct{}), make(chan struct{}), make(chan struct{}), nth(2)
	await := func(signal chan struct{}) {
		select {
		case <-signal:
		case <-t.Context().Done():
		}
	}
	network.On(pgtest.Fault{Statement: "manifold_insert_event", Commit: func(s *pgtest.Statement) bool {
		if second() {
			close(sent)
			await(written)
			s.HangUp()
			await(goOn)
		}
		return true
	}})
	s := openThrough(t, db, network, nil)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 1))
	done := make(chan domain.Appended, 1)
	go func() {
		appended, err := s.Append(context.Background(), tenant, tablestest.Counted("order-1", 1, 2))
		if err != nil {
			t.Error(err)
		}
		done <- appended
	}()
	tablestest.Receive(t, sent, "the commit")
	db.WaitForWrite(t) // otherwise the next attempt may have the lock first
	close(written)
	db.WaitForLock(t)
	close(goOn)
	got := tablestest.Receive(t, done, "the append")
	if got.Position != 3 || got.Duplicate {
		t.Errorf("answered %+v", got)
	}
	if events := tablestest.WholeLog(t, s, tenant); len(events) != 3 {
		t.Errorf("there are %d events, want 3", len(events))
	}
}

func TestUnknownOutcomeIsSaidAndCanBeRepeated(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	network := pgtest.NewNetwork(t, db)
	var armed atomic.Bool
	network.On(pgtest.AfterCommit("manifold_insert_event", func() bool {
		if armed.Load() {
			network.Cut()
		}
		return armed.Load()
	}))
	s := openThrough(t, db, network, func(c *tables.Config) { c.AppendTimeout = 2 * time.Second })
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 1))
	armed.Store(true)
	a := tablestest.WithIDs(tablestest.Counted("order-1", 1, 2))
	_, err := s.Append(t.Context(), tenant, a)
	tablestest.Problem(t, err, domain.CodeOutcomeUnknown)

	// There is no longer a connection, so nothing is sent: that is certain.
	_, err = s.Append(t.Context(), tenant, tablestest.Counted("order-1", domain.Any, 1))
	if e := tablestest.Problem(t, err, domain.CodeUnavailable); strings.Contains(e.Message, "127.0.0.1") || !strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("the message is %q, the error %q: the database's address is for the log, not for clients", e.Message, err)
	}

	other := tablestest.OpenAgain(t, db)
	got := tablestest.Append(t, other, tenant, a)
	if want := int64(3); got.Position != want {
		t.Errorf("repeated elsewhere, the request is at %d, want %d", got.Position, want)
	}
	if events := tablestest.WholeLog(t, other, tenant); len(events) != 3 {
		t.Errorf("there are %d events, want 3", len(events))
	}
}

// The backends are ended again and again, whatever they are at, until some were and many appends went through.
func TestTerminatedBackendsAppendOnce(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	pool := db.Pool(t, pgtest.RoleSuperuser, 1)
	ctx, stop := context.WithCancel(t.Context())
	const appends, kills, between = 300, 3, 5
	var made, ended atomic.Int64
	var killer sync.WaitGroup
	killer.Go(func() {
		for next := int64(0); ctx.Err() == nil; {
			// Restart only if appends have succeeded since: an append that cannot connect at all is refused and fails.
			if made.Load() >= next {
				var n int64
				if err := pool.QueryRow(ctx, `select count(*) filter (where pg_terminate_backend(pid)) from pg_stat_activity
					where usename = 'manifold_app' and datname = current_database()`).Scan(&n); err == nil {
					ended.Add(n)
				}
				next = made.Load() + between
			}
			_, _ = pool.Exec(ctx, "select pg_sleep(0.005)")
		}
	})
	t.Cleanup(func() {
		stop()
		killer.Wait()
	})
	for n := int64(0); n < appends || ended.Load() < kills; n = made.Add(1) {
		got := tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Expected(n), 1))
		if got.Position != n+1 || got.Duplicate {
			t.Fatalf("append %d is answered %+v", n, got)
		}
	}
	stop()
	killer.Wait()
	if events := tablestest.WholeLog(t, s, tenant); int64(len(events)) != made.Load() {
		t.Errorf("there are %d events, want %d", len(events), made.Load())
	}
}

// The primary becomes a standby while connections to it stay open, as behind a proxy: they are given up for new ones,
// which lead to the new primary.
func TestStandbysConnectionsAreGivenUp(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	// The setting is that of new sessions: those that are open stay as they are.
	admin := db.Pool(t, pgtest.RoleSuperuser, 1)
	set := func(standby string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), "alter database "+db.Name+" set default_transaction_read_only = "+standby)
		tablestest.Must(t, err)
	}
	tablestest.Must(t, admin.Ping(t.Context()))
	set("on")
	s := tablestest.OpenWith(t, db, func(c *tables.Config) { c.AppendTimeout = 3 * time.Second })
	tenant := domain.NewTenantID()
	_, err := s.Append(t.Context(), tenant, tablestest.Counted("order-1", domain.None, 1))
	tablestest.Problem(t, err, domain.CodeUnavailable)
	tablestest.Problem(t, s.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: "acme"}), domain.CodeUnavailable)
	set("off")
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 1))
	tablestest.Must(t, s.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: "acme"}))
}

// A client that waits for a row longer than the database allows gets an error that asks for a retry, not an internal
// error.
func TestLockThatIsNotToBeHadIsUnavailable(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	aggregate := aggregate.Definition{Category: "order", On: map[string]string{"*": "state"}}
	tablestest.Must(t, s.PutAggregate(t.Context(), tenant, aggregate))
	tx, err := db.Pool(t, pgtest.RoleSuperuser, 1).Begin(t.Context())
	tablestest.Must(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), "select from manifold.aggregates where tenant_id = $1 for update", tenant)
	tablestest.Must(t, err)
	tablestest.Problem(t, s.PutAggregate(t.Context(), tenant, aggregate), domain.CodeUnavailable)
}
