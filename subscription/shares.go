package subscription

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
	"strconv"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/members"
)

// shareOut gives each of a group's partitions to one of its members, and returns the members by partition; zero ids where
// there are no members. Whoever has the highest weight for a partition gets it (rendezvous hashing), as long as nobody gets
// more than an equal share: with few partitions chance alone would leave members without any. The order of the members does not
// matter, and every process, of any release, comes to the same.
func shareOut(group string, partitions int, of []domain.GroupMemberID) []domain.GroupMemberID {
	owners := make([]domain.GroupMemberID, partitions)
	if len(of) == 0 {
		return owners
	}
	type wish struct {
		weight            uint64
		partition, member int
	}
	wishes := make([]wish, 0, partitions*len(of))
	for partition := range partitions {
		id := partitionID(group, partition)
		for i, member := range of {
			wishes = append(wishes, wish{members.Weight(id, member), partition, i})
		}
	}
	slices.SortFunc(wishes, func(a, b wish) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.partition, b.partition), bytes.Compare(of[b.member][:], of[a.member][:]))
	})
	share, more := partitions/len(of), partitions%len(of) // so many get one more
	given := make([]int, len(of))
	for _, w := range wishes {
		switch {
		case !owners[w.partition].IsZero() || given[w.member] > share || given[w.member] == share && more == 0:
			continue
		case given[w.member] == share:
			more--
		}
		owners[w.partition] = of[w.member]
		given[w.member]++
	}
	return owners
}

// partitionID names a partition of a group, for its weights.
func partitionID(group string, partition int) (id [16]byte) {
	sum := sha256.Sum256([]byte(group + "/" + strconv.Itoa(partition)))
	copy(id[:], sum[:])
	return id
}
