package projection

import "context"

// lane is the pairs of one database that wait for a turn. Each database has workers of its own: one that hangs holds up
// its own projections and no others. Its fields are the runner's, under its lock.
type lane struct {
	database string
	ready    queue
	workers  int
	closed   bool // the database does not answer: nobody gets a turn until it does
}

func (r *Runner) lane(database string) *lane {
	l := r.lanes[database]
	if l == nil {
		l = &lane{database: database}
		r.lanes[database] = l
	}
	return l
}

// dispatch sees to it that somebody works on what waits in a lane; whoever calls it holds the lock.
func (r *Runner) dispatch(l *lane) {
	if r.start == nil || r.ended || l.closed || l.workers == r.config.Workers || l.ready.len() == 0 {
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
	for l.ready.len() > 0 && !l.closed && !r.ended {
		// A pair that moved to another database meanwhile waits there.
		if p := l.ready.pop(); p.state == pairReady && p.lane == l {
			p.state = pairRunning
			return p
		}
	}
	l.workers--
	return nil
}

// closeLane stops the turns of a database's pairs where that is known not to answer, and reports whether it is.
func (r *Runner) closeLane(l *lane) bool {
	if _, out := r.config.Outages.of(l.database); out {
		l.closed = true
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
	// Those that failed before it was known what is the matter need not wait on.
	for _, p := range r.pairs {
		if p.state == pairDelayed && p.followed.database == l.database {
			r.enqueue(p)
		}
	}
	for range min(l.ready.len(), r.config.Workers) {
		r.dispatch(l)
	}
}
