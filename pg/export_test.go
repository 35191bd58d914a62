package pg

import (
	littleendian "encoding/binary"
	"math"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// IsStalled reports whether a tenant shares connections with others whose calls are not answered.
func (p *Pool) IsStalled(tenant domain.TenantID) bool { return p.isStalled(tenant, p.nodes.of(tenant)) }

// HashUUID is the hash by which the node of a tenant is found.
func HashUUID(id domain.TenantID) int32 { return hashUUID(id) }

// Group returns the group of nodes that has a tenant's log.
func (p *Pool) Group(tenant domain.TenantID) int32 {
	p.nodes.of(tenant)
	p.nodes.reading.Wait()
	id := p.nodes.of(tenant)
	return int32(littleendian.LittleEndian.Uint32(id[:])) - 1
}

// Divide lets the pool take the database for a cluster of two nodes.
func (p *Pool) Divide() {
	p.nodes = &nodes{readAt: time.Now().Add(time.Hour), shards: []shard{{math.MinInt32, -1, 1}, {0, math.MaxInt32, 2}}}
}
