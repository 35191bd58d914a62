package projection

import "container/list"

// queue is the pairs of one database that wait for a turn. Turns go round by tenant: a tenant that waits gets as many in a
// row as its weight, and then waits behind all others; what it gets goes round by its pairs. So between two turns of a
// tenant that waits, every other one gets at most its weight in turns, however many projections either has. A tenant of
// which as many pairs are worked on as its ceiling allows is passed over until one of its turns ends.
//
// Its fields are the runner's, under its lock.
type queue struct {
	ceiling int // of a tenant that has none of its own; 0: none
	tenants map[*tenant]*queued
	ring    list.List // of *queued: those that may have a turn, the next one in front
	waiting int       // pairs, also those that a ceiling keeps from a turn
}

// queued is a tenant in a queue.
type queued struct {
	tenant  *tenant
	pairs   fifo
	left    int // turns that it may still have before it goes behind the others; 0: as many as its weight
	running int // its turns that are under way, at this database
	place   *list.Element
}

// push puts a pair behind all others of its tenant.
func (q *queue) push(p *pair) {
	if q.tenants == nil {
		q.tenants = make(map[*tenant]*queued)
	}
	t := q.tenants[p.of]
	if t == nil {
		t = &queued{tenant: p.of}
		q.tenants[p.of] = t
	}
	t.pairs.push(p)
	q.waiting++
	q.admit(t)
}

// admit lets a tenant have turns that waits for one and is below its ceiling. One that has turns left of its round goes on
// in front: its last pair may just be back from one.
func (q *queue) admit(t *queued) {
	switch {
	case t.place != nil || t.pairs.len() == 0 || !q.room(t):
	case t.left > 0:
		t.place = q.ring.PushFront(t)
	default:
		t.place = q.ring.PushBack(t)
	}
}

// room reports whether one more of the tenant's pairs may be worked on. Its own ceiling counts for all databases together,
// the configured one for each.
func (q *queue) room(t *queued) bool {
	if own := t.tenant.share.Ceiling; own > 0 {
		return t.tenant.running < own
	}
	return q.ceiling <= 0 || t.running < q.ceiling
}

// pop takes the pair whose turn it is, of those that still want one, and counts the turn as under way; nil: there is none.
func (q *queue) pop(wants func(*pair) bool) *pair {
	for {
		front := q.ring.Front()
		if front == nil {
			return nil
		}
		t := front.Value.(*queued)
		var next *pair
		if q.room(t) {
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
		if t.left == 0 || t.pairs.len() == 0 || !q.room(t) {
			q.leave(t)
			q.admit(t)
		}
		return next
	}
}

// done says that a turn which pop gave has ended. A pair that wants another one is pushed before.
func (q *queue) done(of *tenant) {
	t := q.tenants[of]
	t.running--
	of.running--
	q.admit(t)
	q.forget(t)
}

// reconsider lets a tenant have turns whose ceiling was raised, or which has fallen below it at another database.
func (q *queue) reconsider(of *tenant) {
	if t := q.tenants[of]; t != nil {
		q.admit(t)
	}
}

func (q *queue) leave(t *queued) {
	if t.place != nil {
		q.ring.Remove(t.place)
		t.place = nil
	}
}

// forget drops a tenant that neither waits nor is worked on.
func (q *queue) forget(t *queued) {
	if t.pairs.len() == 0 && t.running == 0 {
		q.leave(t)
		delete(q.tenants, t.tenant)
	}
}

// waits reports whether anybody may have a turn at once, could somebody only work on it.
func (q *queue) waits() bool { return q.ring.Len() > 0 }

// waitsFor reports whether the end of a turn of the tenant's would let another pair have one.
func (q *queue) waitsFor(of *tenant) bool {
	t := q.tenants[of]
	return q.waits() || t != nil && t.pairs.len() > 0
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
		// What was taken is given back once it is most of the slice: each pair is then moved at most once on average.
		n := copy(f.pairs, f.pairs[f.first:])
		clear(f.pairs[n:])
		f.pairs, f.first = f.pairs[:n], 0
	}
	return p
}
