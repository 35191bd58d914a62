package members

import (
	"encoding/binary"
	"iter"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// Owner returns the member that works on the tenant's projections: of those given the one with the highest weight for it.
// ok is false where there is none.
func Owner(tenant domain.TenantID, members []domain.MemberID) (owner domain.MemberID, ok bool) {
	var highest uint64
	for _, member := range members {
		// Two members of the same weight are told apart by their ids, whatever order they come in.
		w := Weight(tenant, member)
		if !ok || w > highest || w == highest && member.String() > owner.String() {
			owner, highest, ok = member, w, true
		}
	}
	return owner, ok
}

// Count returns how many of the tenants each of the members owns, in the order of the members.
func Count(tenants iter.Seq[domain.TenantID], members []domain.MemberID) []int64 {
	counts := make([]int64, len(members))
	for tenant := range tenants {
		if owner, ok := Owner(tenant, members); ok {
			counts[slices.Index(members, owner)]++
		}
	}
	return counts
}

// Weight is how much a member is the one for a thing: a number between 0 and 2^64 that only the two ids decide. Every release
// must give the same.
func Weight[T, M ~[16]byte](thing T, member M) uint64 {
	h := mix(binary.BigEndian.Uint64(member[:8]))
	h = mix(h ^ binary.BigEndian.Uint64(member[8:]))
	h = mix(h ^ binary.BigEndian.Uint64(thing[:8]))
	return mix(h ^ binary.BigEndian.Uint64(thing[8:]))
}

// mix spreads each bit of its argument over all bits of the result, one to one: the finalizer of SplitMix64 (Steele, Lea
// and Flood 2014).
func mix(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
