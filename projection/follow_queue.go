package projection

import "container/list"

// queue contains the pairs of one database that wait for a turn. Turns go round robin by tenant. A waiting tenant gets
// as many turns in a row as its weight, and then goes to the end of the line. Its turns go round robin by its pairs. So
// between two turns of a waiting tenant, each other tenant gets at most its weight in turns, however many projections
// they have. A tenant that has as many turns under way as its ceiling allows is passed over until one of them ends.
//
// The runner's lock guards its fields.
type queue struct {
	ceiling int // of tenants without a specific one; 0: none
	tenants map[*tenant]*queuedTenant
	ring    list.List // of *queuedTenant: tenants that may have a turn, the next one in front
	waiting int       // pairs, including those held back by a ceiling
}

// queuedTenant is a tenant in a queue.
type queuedTenant struct {
	tenant  *tenant
	pairs   fifo
	left    int // turns left before it goes to the end of the line; 0: as many as its weight
	running int // its turns under way at this database
	place   *list.Element
}

// push puts a pair last among its tenant's.
func (q *queue) push(p *pair) {
	if q.tenants == nil {
		q.tenants = make(map[*tenant]*queuedTenant)
	}
	t := q.tenants[p.tenant]
	if t == nil {
		t = &queuedTenant{tenant: p.tenant}
		q.tenants[p.tenant] = t
	}
	t.pairs.push(p)
	q.waiting++
	q.admit(t)
}

// admit lines up a tenant that waits for a turn and is below its ceiling. A tenant with turns left in its round goes to
// the front: its last pair may just have finished one.
func (q *queue) admit(t *queuedTenant) {
	switch {
	case t.place != nil || t.pairs.len() == 0 || !q.belowCeiling(t):
	case t.left > 0:
		t.place = q.ring.PushFront(t)
	default:
		t.place = q.ring.PushBack(t)
	}
}

// belowCeiling reports whether another of the tenant's pairs may run. The tenant's own ceiling counts for all databases
// together, the configured one for each database.
func (q *queue) belowCeiling(t *queuedTenant) bool {
	if own := t.tenant.share.Ceiling; own > 0 {
		return t.tenant.running < own
	}
	return q.ceiling <= 0 || t.running < q.ceiling
}

// pop returns the pair whose turn it is, skips pairs that no longer want one, and counts the turn as under way; nil:
// there is none.
func (q *queue) pop(wants func(*pair) bool) *pair {
	for {
		front := q.ring.Front()
		if front == nil {
			return nil
		}
		t := front.Value.(*queuedTenant)
		var next *pair
		if q.belowCeiling(t) {
			for next == nil && t.pairs.len() > 0 {
				q.waiting--
				if p := t.pairs.pop(); wants(p) {
					next = p
				}
			}
		}
		if next == nil {
			q.leave(t)
			q.forget(t)
			continue
		}
		if t.left <= 0 {
			t.left = max(1, t.tenant.share.Weight)
		}
		t.left--
		t.running++
		t.tenant.running++
		if t.left == 0 || t.pairs.len() == 0 || !q.belowCeiling(t) {
			q.leave(t)
			q.admit(t)
		}
		return next
	}
}

// done ends a turn from pop. A pair that wants another turn is pushed before.
func (q *queue) done(of *tenant) {
	t := q.tenants[of]
	t.running--
	of.running--
	q.admit(t)
	q.forget(t)
}

// reconsider lines up a tenant whose ceiling was raised, or that has fallen below it at another database.
func (q *queue) reconsider(of *tenant) {
	if t := q.tenants[of]; t != nil {
		q.admit(t)
	}
}

func (q *queue) leave(t *queuedTenant) {
	if t.place != nil {
		q.ring.Remove(t.place)
		t.place = nil
	}
}

// forget drops a tenant with neither waiting nor running pairs.
func (q *queue) forget(t *queuedTenant) {
	if t.pairs.len() == 0 && t.running == 0 {
		q.leave(t)
		delete(q.tenants, t.tenant)
	}
}

// hasReady reports whether a pair may have a turn at once, given a free worker.
func (q *queue) hasReady() bool { return q.ring.Len() > 0 }

// wouldRun reports whether ending one of the tenant's turns would let another pair have one.
func (q *queue) wouldRun(of *tenant) bool {
	t := q.tenants[of]
	return q.hasReady() || t != nil && t.pairs.len() > 0
}

// fifo is a first-in-first-out list of pairs.
type fifo struct {
	pairs []*pair
	first int
}

func (f *fifo) len() int { return len(f.pairs) - f.first }

func (f *fifo) push(p *pair) { f.pairs = append(f.pairs, p) }

func (f *fifo) pop() *pair {
	p := f.pairs[f.first]
	f.pairs[f.first] = nil
	f.first++
	switch {
	case f.first == len(f.pairs):
		f.pairs, f.first = f.pairs[:0], 0
	case f.first > 64 && f.first > len(f.pairs)/2:
		// Consumed space is reclaimed once it is most of the slice, so each pair is moved at most once on average.
		n := copy(f.pairs, f.pairs[f.first:])
		clear(f.pairs[n:])
		f.pairs, f.first = f.pairs[:n], 0
	}
	return p
}
