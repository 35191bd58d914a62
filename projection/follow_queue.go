package projection

import (
	"container/list"
	"iter"

	"github.com/manifold-es/manifold/domain"
)

// queue contains the pairs of one database that wait for a turn. Turns go round robin by tenant. A waiting tenant gets
// as many turns in a row as its weight, and then goes to the end of the line. Its turns go round robin by its pairs. So
// between two turns of a waiting tenant, each other tenant gets at most its weight in turns, however many projections
// they have. A tenant that has as many turns under way as its ceiling allows is passed over until one of them ends.
// Stalled tenants together have at most stalledMost turns under way, so that they leave workers to the others. Likewise
// tenants on one node of a cluster have at most nodeMost: a node that does not answer leaves workers to those of others.
// Those of them that also need another node have one less, so that they leave a worker to the others if it is that node
// that does not answer.
//
// The runner's lock guards its fields.
type queue struct {
	ceiling     int                            // of tenants without a specific one; 0: none
	stalledMost int                            // at least 1
	nodeMost    int                            // at least 1
	nodesOf     func(domain.TenantID) [2]int32 // see RunnerConfig.Nodes; nil: not a cluster
	nodes       map[nodeGroup]*nodeTurns
	tenants     map[*tenant]*queuedTenant
	ring        list.List // of *queuedTenant: tenants that may have a turn, the next one in front
	heldBack    list.List // of *queuedTenant: stalled tenants, the one that has waited longest in front
	stalled     int       // turns under way of tenants that were stalled when the turn began
	waiting     int       // pairs, including those held back by a ceiling
}

// nodeGroup is the tenants that need a node, or those of them that also need another.
type nodeGroup struct {
	node  int32
	mixed bool
}

// nodeTurns are the turns of a nodeGroup.
type nodeTurns struct {
	underWay, most int
	heldBack       list.List // of *queuedTenant: the one that has waited longest in front
}

// queuedTenant is a tenant in a queue.
type queuedTenant struct {
	tenant  *tenant
	pairs   fifo
	left    int // turns left before it goes to the end of the line; 0: as many as its weight
	running int // its turns under way at this database
	line    *list.List
	place   *list.Element // in line
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
	if t.line == &q.heldBack && !t.tenant.stalled {
		q.leave(t)
	}
	busy := q.busyNode(t)
	switch {
	case t.place != nil || t.pairs.len() == 0 || !q.belowCeiling(t):
	case t.tenant.stalled && !q.hasStalledPlace():
		t.line, t.place = &q.heldBack, q.heldBack.PushBack(t)
	case busy != nil:
		t.line, t.place = &busy.heldBack, busy.heldBack.PushBack(t)
	case t.left > 0:
		t.line, t.place = &q.ring, q.ring.PushFront(t)
	default:
		t.line, t.place = &q.ring, q.ring.PushBack(t)
	}
}

// hasStalledPlace reports whether another turn of a stalled tenant may begin.
func (q *queue) hasStalledPlace() bool { return q.stalled < q.stalledMost }

// nodeGroups returns the groups of a tenant that needs these nodes.
func nodeGroups(nodes [2]int32) []nodeGroup {
	a, b := nodes[0], nodes[1]
	if a == b {
		return []nodeGroup{{a, false}}
	}
	return []nodeGroup{{a, false}, {b, false}, {a, true}, {b, true}}
}

// busyNode returns a group of the tenant that no other turn may join; nil: there is none.
func (q *queue) busyNode(t *queuedTenant) *nodeTurns {
	if q.nodesOf == nil {
		return nil
	}
	for _, group := range nodeGroups(q.nodesOf(t.tenant.id)) {
		if turns := q.nodes[group]; turns != nil && turns.underWay >= turns.most {
			return turns
		}
	}
	return nil
}

// released yields the lines of tenants that are held back for no reason any longer.
func (q *queue) released() iter.Seq[*list.List] {
	return func(yield func(*list.List) bool) {
		if q.heldBack.Len() > 0 && q.hasStalledPlace() && !yield(&q.heldBack) {
			return
		}
		for _, turns := range q.nodes {
			if turns.heldBack.Len() > 0 && turns.underWay < turns.most && !yield(&turns.heldBack) {
				return
			}
		}
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
		for line := range q.released() {
			t := line.Front().Value.(*queuedTenant)
			q.leave(t)
			q.admit(t)
		}
		front := q.ring.Front()
		if front == nil {
			if q.hasReady() { // the tenants that were released are held back elsewhere, others may not be
				continue
			}
			return nil
		}
		t := front.Value.(*queuedTenant)
		if t.tenant.stalled && !q.hasStalledPlace() || q.busyNode(t) != nil {
			q.leave(t)
			q.admit(t)
			continue
		}
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
		if next.stalled = t.tenant.stalled; next.stalled {
			q.stalled++
		}
		if q.nodesOf != nil {
			next.nodes = q.nodesOf(next.tenant.id)
		}
		q.countNodes(next, 1)
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

// countNodes adds to the turns under way of the groups of a pair's turn.
func (q *queue) countNodes(p *pair, more int) {
	if q.nodesOf == nil {
		return
	}
	if q.nodes == nil {
		q.nodes = make(map[nodeGroup]*nodeTurns)
	}
	for _, group := range nodeGroups(p.nodes) {
		turns := q.nodes[group]
		if turns == nil {
			turns = &nodeTurns{most: q.nodeMost}
			if group.mixed {
				turns.most = max(1, q.nodeMost-1)
			}
			q.nodes[group] = turns
		}
		if turns.underWay += more; turns.underWay == 0 && turns.heldBack.Len() == 0 {
			delete(q.nodes, group)
		}
	}
}

// done ends a pair's turn from pop. A pair that wants another turn is pushed before.
func (q *queue) done(p *pair) {
	t := q.tenants[p.tenant]
	t.running--
	p.tenant.running--
	if p.stalled {
		p.stalled = false
		q.stalled--
	}
	q.countNodes(p, -1)
	q.admit(t)
	q.forget(t)
}

// reconsider lines up a tenant that is no longer stalled, whose ceiling was raised, or that has fallen below it at
// another database.
func (q *queue) reconsider(of *tenant) {
	if t := q.tenants[of]; t != nil {
		q.admit(t)
	}
}

func (q *queue) leave(t *queuedTenant) {
	if t.place != nil {
		t.line.Remove(t.place)
		t.line, t.place = nil, nil
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
func (q *queue) hasReady() bool {
	for range q.released() {
		return true
	}
	return q.ring.Len() > 0
}

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
