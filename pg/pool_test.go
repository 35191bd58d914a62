package pg_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// hangingCalls are calls that are not answered until end.
type hangingCalls struct {
	ctx    context.Context
	cancel context.CancelFunc
	calls  sync.WaitGroup
}

// hang starts calls for a tenant, half of them in pipelines, and waits until so many of them have a connection.
func hang(t *testing.T, pool *pg.Pool, tenant domain.TenantID, calls, connected int) *hangingCalls {
	t.Helper()
	h := &hangingCalls{}
	h.ctx, h.cancel = context.WithCancel(t.Context())
	begun := make(chan struct{}, calls)
	sleep := pg.Statement{Name: "sleep", SQL: "select from (select pg_sleep(600)) as s"}
	for i := range calls {
		h.calls.Go(func() {
			if i%2 == 0 {
				pg.Under(h.ctx, pool, tenant, func(tx pgx.Tx) error {
					begun <- struct{}{}
					_, err := tx.Exec(h.ctx, sleep.SQL)
					return err
				})
				return
			}
			x, err := pool.Pipeline(h.ctx, tenant)
			if err != nil {
				return
			}
			defer x.Close()
			begun <- struct{}{}
			x.Begin(tenant)
			x.Send(&sleep, nil, nil)
			x.Run()
		})
	}
	for range connected {
		<-begun
	}
	return h
}

func (h *hangingCalls) end() {
	h.cancel()
	h.calls.Wait()
}

// answersSoon fails the test if a tenant's call waits for those of others.
func answersSoon(t *testing.T, pool *pg.Pool, tenant domain.TenantID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := pg.Under(ctx, pool, tenant, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "select")
		return err
	}); err != nil {
		t.Errorf("the call of a tenant whose calls are answered: %v", err)
	}
}

// openPool opens a pool of one PostgreSQL, also if the tests run on a cluster.
func openPool(t *testing.T, conns int) (*pg.Pool, func() domain.TenantID) {
	return openPoolOf(t, pgtest.Plain(t), conns)
}

func openPoolOf(t *testing.T, db pgtest.DB, conns int) (*pg.Pool, func() domain.TenantID) {
	s := tablestest.OpenWith(t, db, func(c *tables.Config) { c.MaxConns = conns })
	return s.DB.App, func() domain.TenantID { return tablestest.NewTenant(t, s) }
}

// misses makes a call of the tenant that exceeds its deadline, and repeats it if most of the time passed until it had a
// connection, because the machine is busy.
func misses(t *testing.T, pool *pg.Pool, tenant domain.TenantID) {
	t.Helper()
	for !pool.IsStalled(tenant) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		var connected time.Time
		err := pg.Under(ctx, pool, tenant, func(tx pgx.Tx) error {
			connected = time.Now()
			_, err := tx.Exec(ctx, "select pg_sleep(600)")
			return err
		})
		cancel()
		if err == nil || !connected.IsZero() && time.Since(connected) >= pg.LateAfter && !pool.IsStalled(tenant) {
			t.Fatalf("a call exceeded its deadline with %v, but the tenant is not stalled", err)
		}
	}
}

func TestATenantLeavesAQuarterOfTheConnections(t *testing.T) {
	t.Parallel()
	pool, newTenant := openPool(t, 8)
	greedy, other := newTenant(), newTenant()
	h := hang(t, pool, greedy, 20, 6)
	defer h.end()
	for range 10 {
		answersSoon(t, pool, other)
	}
	if conns := pool.Stat().AcquiredConns(); conns != 6 {
		t.Errorf("a tenant with 20 calls holds %d of 8 connections", conns)
	}
}

func TestStalledTenantsShareAQuarterOfTheConnections(t *testing.T) {
	t.Parallel()
	pool, newTenant := openPool(t, 8)
	var all []*hangingCalls
	stalled := make([]domain.TenantID, 4)
	for i := range stalled {
		stalled[i] = newTenant()
		misses(t, pool, stalled[i])
	}
	for i, tenant := range stalled {
		connected := 0
		if i < 2 {
			connected = 1 // of the two connections, one for each tenant
		}
		all = append(all, hang(t, pool, tenant, 10, connected))
	}
	other := newTenant()
	for range 10 {
		answersSoon(t, pool, other)
	}
	// In the background, pgx still closes the connections of calls that exceeded their deadlines.
	for deadline := time.Now().Add(tablestest.Patience); pool.Stat().AcquiredConns() != 2; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("stalled tenants hold %d of 8 connections", pool.Stat().AcquiredConns())
		}
	}
	for _, h := range all {
		h.end()
	}
	for _, tenant := range stalled {
		answersSoon(t, pool, tenant)
		if pool.IsStalled(tenant) {
			t.Error("a tenant is stalled although its last call was answered")
		}
	}
	hang(t, pool, stalled[0], 6, 6).end()
}

// An error of the caller follows an answer, and so does one of PostgreSQL.
func TestErrorsAreAnswers(t *testing.T) {
	t.Parallel()
	pool, newTenant := openPool(t, 8)
	tenant := newTenant()
	for _, statement := range []string{"select", "select 1 / 0"} {
		misses(t, pool, tenant)
		err := pg.Under(t.Context(), pool, tenant, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), statement); err != nil {
				return err
			}
			return errors.New("the caller has found something wrong")
		})
		if err == nil || pool.IsStalled(tenant) {
			t.Errorf("%s: the tenant is stalled although a call was answered, %v", statement, err)
		}
	}
}

// A call that is still under way makes its tenant stalled, until another call of the tenant is answered.
func TestATenantIsStalledWhileACallHasNoAnswer(t *testing.T) {
	t.Parallel()
	pool, newTenant := openPool(t, 8)
	tenant := newTenant()
	h := hang(t, pool, tenant, 1, 1)
	defer h.end()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for began := time.Now(); !pool.IsStalled(tenant); <-poll.C {
		if time.Since(began) > time.Minute {
			t.Fatal("the tenant is not stalled")
		}
	}
	answersSoon(t, pool, tenant)
	if pool.IsStalled(tenant) {
		t.Error("a tenant is stalled although a call was answered")
	}
}
