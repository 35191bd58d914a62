package projection

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// workerPool contains the pairs of one database that wait for a turn. Each database has separate workers, so a database
// that hangs delays only its own projections. The runner's lock guards its fields.
type workerPool struct {
	database  string
	ready     queue
	workers   int
	suspended bool          // the database does not answer: no pair gets a turn until it does
	idle      chan struct{} // closed when no pair waits for a turn; nil: nobody listens
	needed    chan struct{} // closed when a pair waits for a turn and none begins; nil: no worker pauses
	surveys   []*survey     // to be made when the database answers
}

func (r *Runner) pool(database string) *workerPool {
	pool := r.pools[database]
	if pool == nil {
		quarter := max(1, r.config.Workers/4)
		pool = &workerPool{database: database, ready: queue{ceiling: r.config.Ceiling, stalledMost: quarter, nodeMost: r.config.Workers - quarter}}
		if r.config.Nodes != nil && r.config.Workers > 2 {
			pool.ready.nodesOf = func(tenant domain.TenantID) [2]int32 { return r.config.Nodes(tenant, database) }
		}
		r.pools[database] = pool
	}
	return pool
}

// dispatch starts a worker if a pair waits in the pool. The caller holds the lock.
func (r *Runner) dispatch(pool *workerPool) {
	if r.start == nil || r.ended || pool.suspended || pool.workers == r.config.Workers || !pool.ready.hasReady() {
		pool.notifyNeeded()
		return
	}
	pool.workers++
	r.start(func(ctx context.Context) {
		for p := r.nextPair(pool); p != nil; p = r.nextPair(pool) {
			r.runTurn(ctx, p)
		}
	})
}

// nextPair returns the pool's next pair. If there is none, it returns nil and the worker ends.
func (r *Runner) nextPair(pool *workerPool) *pair {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !pool.suspended && !r.ended {
		// A pair that has moved to another database waits there.
		p := pool.ready.pop(func(p *pair) bool { return p.state == pairReady && p.pool == pool })
		if p != nil {
			p.state = pairRunning
			pool.notifyIdle()
			return p
		}
		pool.notifyIdle()
		pool.notifyNeeded() // there may be a pair whose nodes have no room
	}
	pool.workers--
	return nil
}

// finishTurn ends the turn of a pair from nextPair. The caller holds the lock, and has put the pair into its next
// state.
func (r *Runner) finishTurn(pool *workerPool, p *pair) {
	pool.ready.done(p)
	r.dispatch(pool)
	if p.tenant.share.Ceiling > 0 {
		// The tenant may have been at its ceiling in other pools.
		r.reconsider(p.tenant)
	}
}

// reconsider lets a tenant's pairs get turns again that its ceiling has prevented.
func (r *Runner) reconsider(of *tenant) {
	for _, pool := range r.pools {
		pool.ready.reconsider(of)
		r.dispatch(pool)
	}
}

// maxYield limits one Yield.
const maxYield = 250 * time.Millisecond

// Yield waits while followed pairs of this process wait for a turn at a database, a quarter of a second at most. Work
// of lower priority at the same database calls it, such as a rebuild between two batches. That work still progresses,
// only slower. Yield returns at once if no pair waits, and when ctx ends.
func (r *Runner) Yield(ctx context.Context, database string) {
	r.mu.Lock()
	pool := r.pools[database]
	if pool == nil || pool.suspended || pool.ready.waiting == 0 {
		r.mu.Unlock()
		return
	}
	if pool.idle == nil {
		pool.idle = make(chan struct{})
	}
	idle := pool.idle
	r.mu.Unlock()
	most := time.NewTimer(maxYield)
	defer most.Stop()
	select {
	case <-idle:
	case <-most.C:
	case <-ctx.Done():
	}
}

// notifyIdle wakes up the callers of Yield when no pair waits for a turn.
func (pool *workerPool) notifyIdle() {
	if pool.idle != nil && (pool.suspended || pool.ready.waiting == 0) {
		close(pool.idle)
		pool.idle = nil
	}
}

// suspendIfOut stops the turns of a database's pairs if the database is known not to answer. It reports whether the
// pool is suspended.
func (r *Runner) suspendIfOut(pool *workerPool) bool {
	if _, out := r.config.Outages.of(pool.database); out {
		pool.suspended = true
		pool.notifyIdle()
	}
	return pool.suspended
}

// Answers reports that a database answers (again), so its projections resume. It returns at once.
func (r *Runner) Answers(database string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resume(r.pool(database))
}

func (r *Runner) resume(pool *workerPool) {
	pool.suspended = false
	postponed := pool.surveys
	pool.surveys = nil
	for _, s := range postponed {
		r.startSurveys(surveys{pool.database: s})
	}
	// Pairs that failed before the outage was known need not wait any longer.
	for p := range r.allPairs() {
		if p.state == pairDelayed && !p.relaxed && r.live(p).database == pool.database {
			r.enqueue(p)
		}
	}
	for range r.config.Workers {
		r.dispatch(pool)
	}
}
