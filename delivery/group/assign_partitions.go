package group

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
	"strconv"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/members"
)

// assignPartitions assigns each partition of a group to a member, and returns the members by partition. The ids are
// zero if there are no members. The member with the highest weight for a partition gets it (rendezvous hashing), unless
// the member has its equal share already. Without this limit, members could end up with none of a few partitions. The
// order of the members does not matter. Every process, of any release, computes the same result.
func assignPartitions(group string, partitions int, of []domain.GroupMemberID) []domain.GroupMemberID {
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
	share, more := partitions/len(of), partitions%len(of) // more members get one partition more
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

// partitionID returns an id for a partition of a group, used for weights.
func partitionID(group string, partition int) (id [16]byte) {
	sum := sha256.Sum256([]byte(group + "/" + strconv.Itoa(partition)))
	copy(id[:], sum[:])
	return id
}
