package pg

import (
	"context"
	littleendian "encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

// stalledAfter is how long the database may leave the calls of a tenant without an answer until the tenant is stalled.
// A call that exceeds its deadline counts if it had a connection for lateAfter.
const (
	stalledAfter = 5 * time.Second
	lateAfter    = 500 * time.Millisecond
)

// maxStalledKept limits the stalled tenants that are remembered.
const maxStalledKept = 10_000

// Pool contains the connections of a login that works under tenants. Tenants that wait for a connection take turns, and
// one tenant holds at most three quarters of the connections. On a cluster, the nodes with the tenants' rows take turns
// likewise, all tenants of a node hold at most three quarters of the connections together, and one of them at most
// three quarters of these. So a node that does not answer leaves connections to the tenants of others.
//
// A tenant is stalled while the database has answered none of its calls for stalledAfter, or if its last call failed
// like that or exceeded its deadline. That happens to all tenants of a cluster's node that hangs, and to a tenant whose
// rows somebody has locked. All stalled tenants together, or those of a node, hold a quarter of the connections, so
// that they leave the others to tenants whose calls are answered. An answer ends that.
//
// Statements that are run on the pool itself, without a tenant, are not counted.
type Pool struct {
	*pgxpool.Pool
	total   *fairshare.Budget // a connection each, of the nodes of a cluster; nil: not a cluster
	nodes   *Nodes            // nil: not a cluster
	closing sync.WaitGroup    // connections that count until they are closed

	mu      sync.Mutex
	shares  map[int32]nodeShares             // by node; without a cluster, all tenants are on node 0
	tenants map[domain.TenantID]*tenantCalls // with calls under way, and those that are stalled
}

// nodeShares are what the tenants of a node share, a connection each.
type nodeShares struct{ all, stalled *fairshare.Budget }

// tenantCalls are the calls of one tenant.
type tenantCalls struct {
	underWay   int
	heard      time.Time // when a call was last answered, or the first of those under way began
	unanswered bool      // the call that ended last
}

// ShareOut divides the connections of a pool between tenants, and between the nodes of a cluster; nodes is nil if there
// is none. Closing the Pool closes the pool.
func ShareOut(pool *pgxpool.Pool, nodes *Nodes) *Pool {
	p := &Pool{Pool: pool, nodes: nodes, shares: make(map[int32]nodeShares), tenants: make(map[domain.TenantID]*tenantCalls)}
	if nodes != nil {
		conns := int64(pool.Config().MaxConns)
		p.total = fairshare.New("connections", conns, conns-conns/4)
	}
	return p
}

// Close closes all connections.
func (p *Pool) Close() {
	p.Pool.Close()
	p.closing.Wait()
}

// Lease is a connection that a call of a tenant holds. Its methods must not be called concurrently.
type Lease struct {
	*pgxpool.Conn
	pool   *Pool
	tenant domain.TenantID
	began  time.Time
	shares []*fairshare.Account
}

// Lease waits for the tenant's turn and for a connection. The caller must end it. Calls of domain.Everyone share the
// connections as those of a tenant do.
func (p *Pool) Lease(ctx context.Context, tenant domain.TenantID) (*Lease, error) {
	l := &Lease{pool: p, tenant: tenant}
	if err := l.wait(ctx); err != nil {
		l.giveUp()
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.tenants[tenant]
	if calls == nil {
		calls = &tenantCalls{}
		p.tenants[tenant] = calls
	}
	l.began = time.Now()
	if calls.underWay++; calls.underWay == 1 {
		calls.heard = l.began
	}
	return l, nil
}

func (l *Lease) wait(ctx context.Context) (err error) {
	p := l.pool
	take := func(b *fairshare.Budget, by domain.TenantID) error {
		share := b.Account(by)
		l.shares = append(l.shares, share)
		return share.Wait(ctx, 1, 0)
	}
	node := p.nodes.Of(l.tenant)
	shares := p.sharesOf(node)
	if p.isStalled(l.tenant) {
		if err := take(shares.stalled, l.tenant); err != nil {
			return err
		}
	}
	// A call waits for its tenant's turn before the node's, so that a busy tenant delays no other of its node.
	if err := take(shares.all, l.tenant); err != nil {
		return err
	}
	if p.total != nil {
		var account domain.TenantID // one for each node
		littleendian.LittleEndian.PutUint32(account[:], uint32(node))
		if err := take(p.total, account); err != nil {
			return err
		}
	}
	l.Conn, err = p.Acquire(ctx)
	return err
}

func (l *Lease) giveUp() {
	for _, share := range l.shares {
		share.Close()
	}
}

func (p *Pool) sharesOf(node int32) nodeShares {
	p.mu.Lock()
	defer p.mu.Unlock()
	shares, known := p.shares[node]
	if !known {
		conns := int64(p.Config().MaxConns)
		stalled, most := max(1, conns/4), conns
		each := most - most/4
		if p.nodes != nil {
			most -= conns / 4
			if each = most; most > 2 { // rounded down: of four connections, a node has three, and one of its tenants two
				each -= (most + 3) / 4
			}
		}
		shares = nodeShares{
			all:     fairshare.New("connections", most, each),
			stalled: fairshare.New("connections of stalled tenants", stalled, max(1, stalled/2)),
		}
		p.shares[node] = shares
	}
	return shares
}

// InTurn runs do in a transaction of Foreground on the tenant's turn, and commits it if do returns nil. The tenant is
// not set, so do may also be about others; on a cluster, those of the same node.
func InTurn(ctx context.Context, p *Pool, tenant domain.TenantID, do func(pgx.Tx) error) (err error) {
	l, err := p.Lease(ctx, tenant)
	if err != nil {
		return Unavailable(err)
	}
	defer func() { l.End(err) }()
	return Unavailable(pgx.BeginFunc(ctx, l.Conn, do))
}

// LookUp runs a single statement on the tenant's turn, outside a transaction, and scans its only row. If there is none,
// the error is pgx.ErrNoRows.
func LookUp[T any](ctx context.Context, p *Pool, tenant domain.TenantID, scan pgx.RowToFunc[T], sql string, args ...any) (found T, err error) {
	l, err := p.Lease(ctx, tenant)
	if err != nil {
		return found, err
	}
	defer func() { l.End(err) }()
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
func (l *Lease) answered() {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	calls := l.pool.tenants[l.tenant]
	calls.heard, calls.unanswered = time.Now(), false
}

// End returns the connection. err is how the call has ended.
func (l *Lease) End(err error) {
	p, now := l.pool, time.Now()
	if conn := l.Conn.Conn(); conn.IsClosed() {
		// pgxpool opens no other in its place until it is cleaned up, which takes up to 15 s if the server does not
		// answer.
		p.closing.Go(func() {
			<-conn.PgConn().CleanupDone()
			l.giveUp()
		})
		l.Release()
	} else {
		l.Release()
		l.giveUp()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.tenants[l.tenant]
	calls.underWay--
	late := errors.Is(err, context.DeadlineExceeded)
	switch {
	case late && now.Sub(l.began) >= lateAfter, noAnswer(err) && now.Sub(calls.heard) >= stalledAfter:
		calls.unanswered = true
	case !late && !noAnswer(err):
		calls.heard, calls.unanswered = now, false
	}
	if calls.underWay == 0 && (!calls.unanswered || len(p.tenants) > maxStalledKept) {
		delete(p.tenants, l.tenant)
	}
}

// noAnswer reports whether a call ended with err without an answer. Errors of the caller follow an answer.
func noAnswer(err error) bool {
	return errors.Is(err, context.Canceled) || Disconnected(err) || SQLState(err) == canceled
}
