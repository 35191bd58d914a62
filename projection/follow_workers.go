package projection

import (
	"context"
	"time"
)

// lane contains the pairs of one database that wait for a turn. Each database has separate workers, so a database that
// hangs delays only its own projections. The runner's lock guards its fields.
type lane struct {
	database string
	ready    queue
	workers  int
	closed   bool          // the database does not answer: no pair gets a turn until it does
	idle     chan struct{} // closed when no pair waits for a turn; nil: nobody listens
	surveys  []*survey     // to be made when the database answers
}

func (r *Runner) lane(database string) *lane {
	l := r.lanes[database]
	if l == nil {
		l = &lane{database: database, ready: queue{ceiling: r.config.Ceiling}}
		r.lanes[database] = l
	}
	return l
}

// dispatch starts a worker if a pair waits in the lane. The caller holds the lock.
func (r *Runner) dispatch(l *lane) {
	if r.start == nil || r.ended || l.closed || l.workers == r.config.Workers || !l.ready.waits() {
		return
	}
	l.workers++
	r.start(func(ctx context.Context) {
		for p := r.nextPair(l); p != nil; p = r.nextPair(l) {
			r.takeTurn(ctx, p)
		}
	})
}

// nextPair returns the lane's next pair. If there is none, it returns nil and the worker ends.
func (r *Runner) nextPair(l *lane) *pair {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !l.closed && !r.ended {
		// A pair that has moved to another database waits there.
		p := l.ready.pop(func(p *pair) bool { return p.state == pairReady && p.lane == l })
		if p != nil {
			p.state = pairRunning
			l.notifyIdle()
			return p
		}
		l.notifyIdle()
	}
	l.workers--
	return nil
}

// finishTurn ends the turn of a pair from nextPair. The caller holds the lock, and has put the pair into its next
// state.
func (r *Runner) finishTurn(l *lane, p *pair) {
	l.ready.done(p.of)
	r.dispatch(l)
	if p.of.share.Ceiling > 0 {
		// The tenant may have been at its ceiling in other lanes.
		r.reconsider(p.of)
	}
}

// reconsider lets a tenant's pairs get turns again that its ceiling has prevented.
func (r *Runner) reconsider(of *tenant) {
	for _, l := range r.lanes {
		l.ready.reconsider(of)
		r.dispatch(l)
	}
}

// maxYield limits one Yield.
const maxYield = 250 * time.Millisecond

// Yield waits while followed pairs of this process wait for a turn at a database, a quarter of a second at most. Work
// of lower priority at the same database calls it, such as a rebuild between two batches. That work still progresses,
// only slower. Yield returns at once if no pair waits, and when ctx ends.
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

// notifyIdle wakes up the callers of Yield when no pair waits for a turn.
func (l *lane) notifyIdle() {
	if l.idle != nil && (l.closed || l.ready.waiting == 0) {
		close(l.idle)
		l.idle = nil
	}
}

// closeLane stops the turns of a database's pairs if the database is known not to answer. It reports whether the lane
// is closed.
func (r *Runner) closeLane(l *lane) bool {
	if _, out := r.config.Outages.of(l.database); out {
		l.closed = true
		l.notifyIdle()
	}
	return l.closed
}

// Answers reports that a database answers (again), so its projections resume. It returns at once.
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
		r.startSurveys(surveys{l.database: s})
	}
	// Pairs that failed before the outage was known need not wait any longer.
	for p := range r.allPairs() {
		if p.state == pairDelayed && !p.eased && r.live(p).database == l.database {
			r.enqueue(p)
		}
	}
	for range r.config.Workers {
		r.dispatch(l)
	}
}
