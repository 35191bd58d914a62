package pg

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

// stalledAfter is how long the database may leave the calls of a tenant without an answer until the tenant is stalled.
// nodeStalledAfter is likewise for a node of a cluster, which many tenants use.
const (
	stalledAfter     = 5 * time.Second
	nodeStalledAfter = time.Second
)

// Pool contains the connections of a login that works under tenants. Tenants that wait for a connection take turns, and
// one tenant holds at most three quarters of the connections. On a cluster, the nodes with the tenants' logs take turns
// likewise, and one tenant holds three quarters of what its node may.
//
// A tenant is stalled while the database has answered none of its calls for stalledAfter, or if its last call failed like
// that or exceeded its deadline. That happens to a tenant whose rows somebody has locked. All tenants of a cluster's node
// are stalled if none of their calls was answered for nodeStalledAfter. All stalled tenants together hold a quarter of the
// connections, so that they leave the others to tenants whose calls are answered. An answer ends that.
//
// Statements that are run on the pool itself, without a tenant, are not counted.
type Pool struct {
	*pgxpool.Pool
	shares  *fairshare.Budget // a connection each, of all nodes of a cluster, otherwise of all tenants
	stalled *fairshare.Budget // a connection each, of stalled tenants
	nodes   *nodes            // nil: not a cluster
	closing sync.WaitGroup    // connections that count until they are closed

	mu     sync.Mutex
	ofNode map[domain.TenantID]*fairshare.Budget // a connection each, of a node's tenants
	calls  map[domain.TenantID]*calls            // by tenants and by nodes: those with calls under way, and those that are stalled
}

// calls are the calls of one tenant, or of one node's tenants.
type calls struct {
	patience   time.Duration // stalledAfter or nodeStalledAfter
	underWay   int
	heard      time.Time // when a call was last answered, or the first of those under way began
	unanswered bool      // the call that ended last
}

func shareOut(pool *pgxpool.Pool, nodes *nodes) *Pool {
	conns := int64(pool.Config().MaxConns)
	quarter := conns / 4
	return &Pool{
		Pool:    pool,
		shares:  fairshare.New("connections", conns, conns-quarter),
		stalled: fairshare.New("connections of stalled tenants", max(1, quarter), max(1, quarter/2)),
		nodes:   nodes,
		ofNode:  make(map[domain.TenantID]*fairshare.Budget),
		calls:   make(map[domain.TenantID]*calls),
	}
}

// Close closes all connections.
func (p *Pool) Close() {
	p.Pool.Close()
	p.closing.Wait()
	if p.nodes != nil {
		p.nodes.reading.Wait()
	}
}

// lease is a connection that a call of a tenant holds.
type lease struct {
	*pgxpool.Conn
	pool         *Pool
	tenant, node domain.TenantID
	held         []*fairshare.Account
}

// lease waits for the tenant's turn and for a connection. The caller must end it.
func (p *Pool) lease(ctx context.Context, tenant domain.TenantID) (*lease, error) {
	l := &lease{pool: p, tenant: tenant, node: p.nodes.of(tenant)}
	if err := l.wait(ctx); err != nil {
		l.leave()
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, patience := range l.parties() {
		c := p.calls[id]
		if c == nil {
			c = &calls{patience: patience}
			p.calls[id] = c
		}
		if c.underWay++; c.underWay == 1 {
			c.heard = time.Now()
		}
	}
	return l, nil
}

func (l *lease) wait(ctx context.Context) (err error) {
	p := l.pool
	take := func(b *fairshare.Budget, by domain.TenantID) error {
		account := b.Account(by)
		l.held = append(l.held, account)
		return account.Wait(ctx, 1, 0)
	}
	if p.isStalled(l.tenant, l.node) {
		if err := take(p.stalled, l.tenant); err != nil {
			return err
		}
	}
	whose := l.tenant
	if l.node != (domain.TenantID{}) {
		// A call waits for its tenant's turn first, so that a busy tenant delays no other of its node.
		if err := take(p.sharesOf(l.node), l.tenant); err != nil {
			return err
		}
		whose = l.node
	}
	if err := take(p.shares, whose); err != nil {
		return err
	}
	l.Conn, err = p.Acquire(ctx)
	return err
}

func (l *lease) leave() {
	for _, account := range l.held {
		account.Close()
	}
}

// parties yields the tenant and, on a cluster, its node.
func (l *lease) parties() iter.Seq2[domain.TenantID, time.Duration] {
	return func(yield func(domain.TenantID, time.Duration) bool) {
		_ = yield(l.tenant, stalledAfter) && l.node != (domain.TenantID{}) && yield(l.node, nodeStalledAfter)
	}
}

// sharesOf returns what the tenants of a node share.
func (p *Pool) sharesOf(node domain.TenantID) *fairshare.Budget {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.ofNode[node]
	if b == nil {
		conns := int64(p.Config().MaxConns)
		conns -= conns / 4
		b = fairshare.New("connections of a node", conns, conns-conns/4)
		p.ofNode[node] = b
	}
	return b
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

// isStalled reports whether a tenant or its node is stalled.
func (p *Pool) isStalled(ids ...domain.TenantID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		if c := p.calls[id]; c != nil && (c.unanswered || c.underWay > 0 && time.Since(c.heard) >= c.patience) {
			return true
		}
	}
	return false
}

// answered records an answer while the call continues.
func (l *lease) answered() {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	for id := range l.parties() {
		c := l.pool.calls[id]
		c.heard, c.unanswered = time.Now(), false
	}
}

// end returns the connection. err is how the call has ended.
func (l *lease) end(err error) {
	p, now := l.pool, time.Now()
	if conn := l.Conn.Conn(); conn.IsClosed() {
		// pgxpool opens no other in its place until it is cleaned up, which takes up to 15 s if the server does not answer.
		p.closing.Go(func() {
			<-conn.PgConn().CleanupDone()
			l.leave()
		})
		l.Release()
	} else {
		l.Release()
		l.leave()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range l.parties() {
		c := p.calls[id]
		c.underWay--
		late := id == l.tenant && errors.Is(err, context.DeadlineExceeded)
		switch {
		case late, noAnswer(err) && now.Sub(c.heard) >= c.patience:
			c.unanswered = true
		case !noAnswer(err):
			c.heard, c.unanswered = now, false
		}
		if c.underWay == 0 && !c.unanswered {
			delete(p.calls, id)
		}
	}
}

// noAnswer reports whether a call ended with err without an answer. Errors of the caller follow an answer.
func noAnswer(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || Disconnected(err) || SQLState(err) == canceled
}
