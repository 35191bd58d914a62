package members

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// shares holds which member works for which tenant.
type shares struct {
	members []domain.MemberID
	owners  map[domain.TenantID]domain.MemberID // nil: the owner is what Owner returns
}

// divide distributes the tenants evenly. Each tenant goes to the member with the highest weight for it among those with
// less than an equal share so far. So the shares differ by one at most, and a member that joins or leaves moves few
// tenants but its own. Every process computes the same result from the same members and tenants.
// docs/decisions/0057-even-shares.md says what happens while their inputs differ.
//
// Processes of earlier releases assign each tenant to its Owner. While one of them is running, all processes do.
func divide(members []domain.MemberID, tenants []domain.TenantID) shares {
	s := shares{members: members}
	if len(members) == 0 || slices.ContainsFunc(members, func(id domain.MemberID) bool { return !id.Evenly() }) {
		return s
	}
	tenants = slices.Clone(tenants)
	slices.SortFunc(tenants, func(a, b domain.TenantID) int { return bytes.Compare(a[:], b[:]) })
	s.owners = make(map[domain.TenantID]domain.MemberID, len(tenants))
	share, more := len(tenants)/len(members), len(tenants)%len(members) // so many members get one more
	given := make(map[domain.MemberID]int, len(members))
	full := func(id domain.MemberID) bool { return given[id] > share || given[id] == share && more == 0 }
	open := slices.DeleteFunc(slices.Clone(members), full)
	for _, tenant := range tenants {
		owner, _ := Owner(tenant, open)
		s.owners[tenant] = owner
		if given[owner]++; given[owner] > share {
			more--
		}
		if given[owner] >= share {
			open = slices.DeleteFunc(open, full)
		}
	}
	return s
}

// owner returns the member that works for a tenant. A tenant that appeared after the tenants were listed belongs to its
// Owner.
func (s *shares) owner(tenant domain.TenantID) (domain.MemberID, bool) {
	if owner, ok := s.owners[tenant]; ok {
		return owner, true
	}
	return Owner(tenant, s.members)
}

// Owner returns the member with the highest weight for the tenant; ok is false if there are no members.
func Owner(tenant domain.TenantID, members []domain.MemberID) (owner domain.MemberID, ok bool) {
	var highest uint64
	for _, member := range members {
		// Members of equal weight are ordered by their ids, whatever order they come in.
		w := Weight(tenant, member)
		if !ok || w > highest || w == highest && member.String() > owner.String() {
			owner, highest, ok = member, w, true
		}
	}
	return owner, ok
}

// Count returns how many of the tenants each member owns, in the order of the members. The argument tenants must be all
// tenants that have a log.
func Count(tenants []domain.TenantID, members []Member) []int64 {
	ids := idsOf(members)
	counts := make([]int64, len(ids))
	s := divide(ids, tenants)
	for _, tenant := range tenants {
		if owner, ok := s.owner(tenant); ok {
			counts[slices.Index(ids, owner)]++
		}
	}
	return counts
}

// Weight ranks a member for a thing. It is a uint64 that depends on the two ids alone. Every release must compute the
// same.
func Weight[T, M ~[16]byte](thing T, member M) uint64 {
	h := mix(binary.BigEndian.Uint64(member[:8]))
	h = mix(h ^ binary.BigEndian.Uint64(member[8:]))
	h = mix(h ^ binary.BigEndian.Uint64(thing[:8]))
	return mix(h ^ binary.BigEndian.Uint64(thing[8:]))
}

// mix spreads each bit of its argument over all bits of the result, one to one. It is the finalizer of SplitMix64
// (Steele, Lea and Flood 2014).
func mix(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
