package projection

import (
	"context"
	"time"
)

// lane is the pairs of one database that wait for a turn. Each database has workers of its own: one that hangs holds up
// its own projections and no others. Its fields are the runner's, under its lock.
type lane struct {
	database string
	ready    queue
	workers  int
	closed   bool          // the database does not answer: nobody gets a turn until it does
	idle     chan struct{} // closed when nobody waits for a turn any more; nil: nobody listens
	surveys  []*survey     // to be made when it answers
}

func (r *Runner) lane(database string) *lane {
	l := r.lanes[database]
	if l == nil {
		l = &lane{database: database, ready: queue{ceiling: r.config.Ceiling}}
		r.lanes[database] = l
	}
	return l
}

// dispatch sees to it that somebody works on what waits in a lane; whoever calls it holds the lock.
func (r *Runner) dispatch(l *lane) {
	if r.start == nil || r.ended || l.closed || l.workers == r.config.Workers || !l.ready.waits() {
		return
	}
	l.workers++
	r.start(func(ctx context.Context) {
		for p := r.next(l); p != nil; p = r.next(l) {
			r.turn(ctx, p)
		}
	})
}

// next is the lane's next pair; nil: there is none, and the worker goes.
func (r *Runner) next(l *lane) *pair {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !l.closed && !r.ended {
		// A pair that moved to another database meanwhile waits there.
		p := l.ready.pop(func(p *pair) bool { return p.state == pairReady && p.lane == l })
		if p != nil {
			p.state = pairRunning
			l.tellIdle()
			return p
		}
		l.tellIdle()
	}
	l.workers--
	return nil
}

// done ends the turn that next gave a pair; whoever calls it holds the lock, and has put the pair where it goes on.
func (r *Runner) done(l *lane, p *pair) {
	l.ready.done(p.of)
	r.dispatch(l)
	if p.of.share.Ceiling > 0 {
		// It may have been at its ceiling elsewhere.
		r.reconsider(p.of)
	}
}

// reconsider lets a tenant's pairs have turns that its ceiling has kept from one.
func (r *Runner) reconsider(of *tenant) {
	for _, l := range r.lanes {
		l.ready.reconsider(of)
		r.dispatch(l)
	}
}

// maxYield bounds one Yield.
const maxYield = 250 * time.Millisecond

// Yield waits while pairs that this process follows wait for a turn at a database, a quarter of a second at the most: it is
// for what works behind them at the same database, such as a rebuild between two batches, which goes on all the same, only
// slower. It returns at once where nobody waits, and when ctx ends.
func (r *Runner) Yield(ctx context.Context, database string) {
	r.mu.Lock()
	l := r.lanes[database]
	if l == nil || l.closed || l.ready.waiting == 0 {
		r.mu.Unlock()
		return
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	r.mu.Unlock()
	most := time.NewTimer(maxYield)
	defer most.Stop()
	select {
	case <-idle:
	case <-most.C:
	case <-ctx.Done():
	}
}

// tellIdle lets those go on who have waited until nobody waits for a turn.
func (l *lane) tellIdle() {
	if l.idle != nil && (l.closed || l.ready.waiting == 0) {
		close(l.idle)
		l.idle = nil
	}
}

// closeLane stops the turns of a database's pairs where that is known not to answer, and reports whether it is.
func (r *Runner) closeLane(l *lane) bool {
	if _, out := r.config.Outages.of(l.database); out {
		l.closed = true
		l.tellIdle()
	}
	return l.closed
}

// Answers says that a database answers, again or at last: its projections go on. It returns at once.
func (r *Runner) Answers(database string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.openLane(r.lane(database))
}

func (r *Runner) openLane(l *lane) {
	l.closed = false
	unmade := l.surveys
	l.surveys = nil
	for _, s := range unmade {
		r.conduct(surveys{l.database: s})
	}
	// Those that failed before it was known what is the matter need not wait on.
	for p := range r.allPairs() {
		if p.state == pairDelayed && !p.eased && r.live(p).database == l.database {
			r.enqueue(p)
		}
	}
	for range r.config.Workers {
		r.dispatch(l)
	}
}
