package pg

import (
	"math"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// LateAfter is how long a call that exceeds its deadline must have had a connection to count as unanswered.
const LateAfter = lateAfter

// IsStalled reports whether a tenant shares connections with others whose calls are not answered.
func (p *Pool) IsStalled(tenant domain.TenantID) bool { return p.isStalled(tenant) }

// Group returns the group of nodes that has a tenant's log, as soon as it is known.
func (p *Pool) Group(tenant domain.TenantID) int32 {
	for {
		if group := p.nodes.Of(tenant); group >= 0 {
			return group
		}
		<-time.After(10 * time.Millisecond)
	}
}

// Divide lets the pool take the database for a cluster of two nodes.
func (p *Pool) Divide() {
	of := ShareOut(p.Pool, &Nodes{readAt: time.Now().Add(time.Hour), shards: []shard{{math.MinInt32, -1, 1}, {0, math.MaxInt32, 2}}})
	p.nodes, p.total = of.nodes, of.total
}

// HashUUID is the hash by which the node of a tenant is found.
func HashUUID(id domain.TenantID) int32 { return hashUUID(id) }
