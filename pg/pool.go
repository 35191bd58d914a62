package pg

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

// stalledAfter is how long the database may leave the calls of a tenant without an answer until the tenant is stalled.
const stalledAfter = 5 * time.Second

// Pool contains the connections of a login that works under tenants. Tenants that wait for a connection take turns, and
// one tenant holds at most three quarters of the connections.
//
// A tenant is stalled while the database has answered none of its calls for stalledAfter, or if its last call failed like
// that or exceeded its deadline. That happens to all tenants of a cluster's node that hangs, and to a tenant whose rows
// somebody has locked. All stalled tenants together hold a quarter of the connections, so that they leave the others to
// tenants whose calls are answered. An answer ends that.
//
// Statements that are run on the pool itself, without a tenant, are not counted.
type Pool struct {
	*pgxpool.Pool
	shares  *fairshare.Budget // a connection each, of all tenants
	stalled *fairshare.Budget // a connection each, of stalled tenants

	distributed bool

	mu      sync.Mutex
	tenants map[domain.TenantID]*tenantCalls // with calls under way, and those that are stalled
}

// tenantCalls are the calls of one tenant.
type tenantCalls struct {
	underWay   int
	heard      time.Time // when a call was last answered, or the first of those under way began
	unanswered bool      // the call that ended last
}

func shareOut(pool *pgxpool.Pool, distributed bool) *Pool {
	conns := int64(pool.Config().MaxConns)
	quarter := conns / 4
	return &Pool{
		Pool:        pool,
		shares:      fairshare.New("connections", conns, conns-quarter),
		stalled:     fairshare.New("connections of stalled tenants", max(1, quarter), max(1, quarter/2)),
		distributed: distributed,
		tenants:     make(map[domain.TenantID]*tenantCalls),
	}
}

// lease is a connection that a call of a tenant holds.
type lease struct {
	*pgxpool.Conn
	pool           *Pool
	tenant         domain.TenantID
	share, stalled *fairshare.Account
}

// lease waits for the tenant's turn and for a connection. The caller must end it.
func (p *Pool) lease(ctx context.Context, tenant domain.TenantID) (*lease, error) {
	l := &lease{pool: p, tenant: tenant, share: p.shares.Account(tenant)}
	if p.isStalled(tenant) {
		l.stalled = p.stalled.Account(tenant)
		if err := l.stalled.Wait(ctx, 1, 0); err != nil {
			return nil, err
		}
	}
	err := l.share.Wait(ctx, 1, 0)
	if err == nil {
		l.Conn, err = p.Acquire(ctx)
	}
	if err != nil {
		l.share.Close()
		l.stalled.Close()
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.tenants[tenant]
	if calls == nil {
		calls = &tenantCalls{}
		p.tenants[tenant] = calls
	}
	if calls.underWay++; calls.underWay == 1 {
		calls.heard = time.Now()
	}
	return l, nil
}

// LookUp runs a single statement on the tenant's turn, outside a transaction, and scans its only row. If there is none, the
// error is pgx.ErrNoRows.
func LookUp[T any](ctx context.Context, p *Pool, tenant domain.TenantID, scan pgx.RowToFunc[T], sql string, args ...any) (found T, err error) {
	l, err := p.lease(ctx, tenant)
	if err != nil {
		return found, err
	}
	defer func() { l.end(err) }()
	rows, _ := l.Query(ctx, sql, args...)
	return pgx.CollectExactlyOneRow(rows, scan)
}

func (p *Pool) isStalled(tenant domain.TenantID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.tenants[tenant]
	return calls != nil && (calls.unanswered || calls.underWay > 0 && time.Since(calls.heard) >= stalledAfter)
}

// answered records an answer while the call continues.
func (l *lease) answered() {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	calls := l.pool.tenants[l.tenant]
	calls.heard, calls.unanswered = time.Now(), false
}

// end returns the connection. err is how the call has ended.
func (l *lease) end(err error) {
	l.Release()
	l.share.Close()
	l.stalled.Close()
	p, now := l.pool, time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.tenants[l.tenant]
	calls.underWay--
	switch {
	case errors.Is(err, context.DeadlineExceeded), noAnswer(err) && now.Sub(calls.heard) >= stalledAfter:
		calls.unanswered = true
	case !noAnswer(err):
		calls.heard, calls.unanswered = now, false
	}
	if calls.underWay == 0 && !calls.unanswered {
		delete(p.tenants, l.tenant)
	}
}

// noAnswer reports whether a call ended with err without an answer. Errors of the caller follow an answer.
func noAnswer(err error) bool {
	return errors.Is(err, context.Canceled) || Disconnected(err) || SQLState(err) == canceled
}
