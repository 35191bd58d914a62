package projection

import (
	"container/list"

	"github.com/manifold-es/manifold/domain"
)

// queue contains the pairs of one database that wait for a turn. Turns go round robin by tenant. A waiting tenant gets
// as many turns in a row as its weight, and then goes to the end of the line. Its turns go round robin by its pairs. So
// between two turns of a waiting tenant, each other tenant gets at most its weight in turns, however many projections
// they have. A tenant that has as many turns under way as its ceiling allows is passed over until one of them ends.
// Stalled tenants together have at most stalledMost turns under way, so that they leave workers to the others.
//
// On a cluster, tenants on one node have at most nodeMost turns under way: a node that does not answer leaves workers
// to those of others. Those of them that also need another node have one less, so that they leave a worker to the
// others if it is that node that does not answer. A tenant is passed over until its nodes have room, and keeps its
// place in the line.
//
// The runner's lock guards its fields.
type queue struct {
	ceiling     int                            // of tenants without a specific one; 0: none
	stalledMost int                            // at least 1
	nodeMost    int                            // at least 2
	nodesOf     func(domain.TenantID) [2]int32 // see RunnerConfig.Nodes; nil: nodes have no limit
	nodes       map[int32]nodeTurns            // with turns under way
	tenants     map[*tenant]*queuedTenant
	ring        list.List // of *queuedTenant: tenants that may have a turn, the next one in front
	heldBack    list.List // of *queuedTenant: stalled tenants, the one that has waited longest in front
	stalled     int       // turns under way of tenants that were stalled when the turn began
	waiting     int       // pairs, including those held back by a ceiling
}

// nodeTurns counts the turns under way that need a node.
type nodeTurns struct{ all, mixed int } // mixed: they also need another node

// queuedTenant is a tenant in a queue.
type queuedTenant struct {
	tenant  *tenant
	nodes   [2]int32
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
	if q.nodesOf != nil {
		t.nodes = q.nodesOf(p.tenant.id)
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
	switch {
	case t.place != nil || t.pairs.len() == 0 || !q.belowCeiling(t):
	case t.tenant.stalled && !q.hasStalledPlace():
		t.line, t.place = &q.heldBack, q.heldBack.PushBack(t)
	case t.left > 0:
		t.line, t.place = &q.ring, q.ring.PushFront(t)
	default:
		t.line, t.place = &q.ring, q.ring.PushBack(t)
	}
}

// hasStalledPlace reports whether another turn of a stalled tenant may begin.
func (q *queue) hasStalledPlace() bool { return q.stalled < q.stalledMost }

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
		if longest := q.heldBack.Front(); longest != nil && q.hasStalledPlace() {
			t := longest.Value.(*queuedTenant)
			q.leave(t)
			q.admit(t)
		}
		t := q.next()
		if t == nil {
			if q.heldBack.Len() > 0 && q.hasStalledPlace() {
				continue
			}
			return nil
		}
		if t.tenant.stalled && !q.hasStalledPlace() {
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
		next.nodes = t.nodes
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

// next returns the first tenant in the line whose nodes have room; nil: there is none.
func (q *queue) next() *queuedTenant {
	for place := q.ring.Front(); place != nil; place = place.Next() {
		if t := place.Value.(*queuedTenant); q.nodesHaveRoom(t.nodes) {
			return t
		}
	}
	return nil
}

func (q *queue) nodesHaveRoom(nodes [2]int32) bool {
	if q.nodesOf == nil {
		return true
	}
	a, b := q.nodes[nodes[0]], q.nodes[nodes[1]]
	if nodes[0] == nodes[1] {
		return a.all < q.nodeMost
	}
	return max(a.all, b.all) < q.nodeMost && max(a.mixed, b.mixed) < q.nodeMost-1
}

// countNodes adds to the turns under way that need the nodes of a pair's turn.
func (q *queue) countNodes(p *pair, turns int) {
	if q.nodesOf == nil {
		return
	}
	if q.nodes == nil {
		q.nodes = make(map[int32]nodeTurns)
	}
	mixed := p.nodes[0] != p.nodes[1]
	for i, node := range p.nodes {
		if i == 1 && !mixed {
			break
		}
		n := q.nodes[node]
		n.all += turns
		if mixed {
			n.mixed += turns
		}
		if q.nodes[node] = n; n.all == 0 {
			delete(q.nodes, node)
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

// hasReady reports whether a pair may have a turn at once, given a free worker, and unless its nodes have no room.
func (q *queue) hasReady() bool {
	return q.ring.Len() > 0 || q.heldBack.Len() > 0 && q.hasStalledPlace()
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
