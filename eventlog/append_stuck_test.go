package eventlog_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// The database answers no attempt of eight tenants in time, and there are four connections. Once that is known, the
// appends of another tenant do not wait for them.
func TestTenantsWithoutAnswersLeaveConnections(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	s := tablestest.OpenWith(t, db, func(c *tables.Config) { c.MaxConns, c.AppendTimeout = 4, 4*time.Second })
	tx, err := db.Pool(t, pgtest.RoleSuperuser, 1).Begin(t.Context())
	tablestest.Must(t, err)
	release := sync.OnceFunc(func() { tx.Rollback(context.Background()) })
	defer release()
	var clients, failed sync.WaitGroup
	defer clients.Wait()
	quit, stop := context.WithCancel(t.Context())
	defer stop()
	stuck := make([]domain.TenantID, 8)
	for i := range stuck {
		stuck[i] = tablestest.NewTenant(t, s)
		tablestest.Append(t, s, stuck[i], tablestest.Counted("order-1", domain.Any, 1))
		_, err := tx.Exec(t.Context(), "select from manifold.logs where tenant_id = $1 for update", [16]byte(stuck[i]))
		tablestest.Must(t, err)
		failed.Add(1)
		said := sync.OnceFunc(failed.Done)
		clients.Go(func() {
			for quit.Err() == nil {
				if _, err := s.Append(quit, stuck[i], tablestest.Counted("order-1", domain.Any, 1)); err == nil {
					t.Error("a locked log was appended to")
				}
				said()
			}
		})
	}
	failed.Wait()
	quiet := tablestest.NewTenant(t, s)
	var longest time.Duration
	for range 40 {
		began := time.Now()
		tablestest.Append(t, s, quiet, tablestest.Counted("order-1", domain.Any, 1))
		longest = max(longest, time.Since(began))
	}
	t.Logf("the longest append of another tenant took %s", longest)
	if longest > time.Second { // an attempt without an answer takes two
		t.Errorf("an append of another tenant took %s", longest)
	}
	stop()
	clients.Wait()
	release()
	for _, tenant := range stuck {
		tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, 1))
	}
}
