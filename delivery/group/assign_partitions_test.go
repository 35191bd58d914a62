package group_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// counted returns how many partitions each member has.
func counted(owners []domain.GroupMemberID) map[domain.GroupMemberID]int {
	counts := make(map[domain.GroupMemberID]int)
	for _, owner := range owners {
		counts[owner]++
	}
	return counts
}

// Every process computes the same shares, whatever the order of the members. The shares are equal, and a change of
// members moves few more partitions than necessary.
func TestPartitionsAreSharedEqually(t *testing.T) {
	t.Parallel()
	moved, least := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.IntRange(1, 64).Draw(t, "partitions")
		members := make([]domain.GroupMemberID, rapid.IntRange(1, 20).Draw(t, "members"))
		for i := range members {
			members[i] = domain.NewGroupMemberID()
		}
		name := rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "name")
		owners := group.AssignPartitions(name, partitions, members)
		if again := group.AssignPartitions(name, partitions, rapid.Permutation(members).Draw(t, "order")); !slices.Equal(owners, again) {
			t.Fatal("the order of the members matters")
		}
		counts := counted(owners)
		for _, member := range members {
			if n := counts[member]; n != partitions/len(members) && n != (partitions+len(members)-1)/len(members) {
				t.Fatalf("one of %d members has %d of %d partitions", len(members), n, partitions)
			}
		}
		more := append(slices.Clone(members), domain.NewGroupMemberID())
		after := group.AssignPartitions(name, partitions, more)
		for number := range owners {
			if owners[number] != after[number] {
				moved++
			}
		}
		least += counted(after)[more[len(more)-1]]
	})
	if moved > 2*least+10 {
		t.Errorf("%d partitions moved when members came; %d would have been enough", moved, least)
	}
	t.Logf("%d partitions moved where %d had to", moved, least)
	for _, owner := range group.AssignPartitions("g", 3, nil) {
		if !owner.IsZero() {
			t.Error("a partition of a group without members has an owner")
		}
	}
}

// The shares are the same in every release, because two releases run side by side during an upgrade.
func TestSharesAreFixed(t *testing.T) {
	t.Parallel()
	members := make([]domain.GroupMemberID, 3)
	for i := range members {
		var err error
		if members[i], err = domain.ParseGroupMemberID(fmt.Sprintf("0190d3a4-%d000-7def-8123-456789abcdef", i)); err != nil {
			t.Fatal(err)
		}
	}
	var got []int
	for _, owner := range group.AssignPartitions("send-mail", 8, members) {
		got = append(got, slices.Index(members, owner))
	}
	if want := "[2 2 1 1 2 0 0 1]"; fmt.Sprint(got) != want {
		t.Errorf("the partitions are of %v, not %v", got, want)
	}
}
