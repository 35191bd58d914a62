package members_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/members"
)

// Everybody comes to the same owner, in whatever order the members stand; one that comes or goes moves no tenants but those
// that it wins or loses; and each has about its part.
func TestOwner(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := make([]domain.MemberID, rapid.IntRange(2, 6).Draw(t, "members"))
		for i := range all {
			all[i] = domain.NewMemberID()
		}
		tenants := newTenants(400)
		counts := make(map[domain.MemberID]int)
		shuffled := rapid.Permutation(all).Draw(t, "order")
		for _, tenant := range tenants {
			owner, ok := members.Owner(tenant, all)
			if again, _ := members.Owner(tenant, shuffled); !ok || again != owner {
				t.Fatalf("%s has two owners", tenant)
			}
			counts[owner]++
			without, ok := members.Owner(tenant, all[1:])
			if !ok || owner != all[0] && without != owner {
				t.Fatalf("%s moves although its owner stays", tenant)
			}
		}
		for i, n := range members.Count(slices.Values(tenants), all) {
			if n != int64(counts[all[i]]) {
				t.Fatalf("counted are %d tenants of a member that owns %d", n, counts[all[i]])
			}
		}
		// A binomial part is this far from the mean less often than once in a billion times.
		mean := float64(len(tenants)) / float64(len(all))
		for _, member := range all {
			if n := float64(counts[member]); n < mean-6.5*20 || n > mean+6.5*20 || n == 0 {
				t.Fatalf("one of %d members owns %d of %d tenants", len(all), counts[member], len(tenants))
			}
		}
	})
	if _, ok := members.Owner(domain.NewTenantID(), nil); ok {
		t.Error("nobody owns a tenant")
	}
}

// The owner is the same in every release: two of them work side by side while processes are replaced.
func TestOwnerIsFixed(t *testing.T) {
	t.Parallel()
	ids := make([]domain.MemberID, 3)
	for i, text := range []string{"0190d3a4-0000-7def-8123-456789abcdef", "0190d3a4-1111-7def-8123-456789abcdef", "0190d3a4-2222-7def-8123-456789abcdef"} {
		var err error
		if ids[i], err = domain.ParseMemberID(text); err != nil {
			t.Fatal(err)
		}
	}
	got := ""
	for _, text := range []string{
		"0190d3a4-aaaa-7def-8123-000000000001", "0190d3a4-aaaa-7def-8123-000000000002", "0190d3a4-aaaa-7def-8123-000000000003",
		"0190d3a4-aaaa-7def-8123-000000000004", "0190d3a4-aaaa-7def-8123-000000000005", "0190d3a4-aaaa-7def-8123-000000000006",
	} {
		tenant, err := domain.ParseTenantID(text)
		if err != nil {
			t.Fatal(err)
		}
		owner, _ := members.Owner(tenant, ids)
		for i := range ids {
			if ids[i] == owner {
				got += string(rune('0' + i))
			}
		}
	}
	if want := "201201"; got != want {
		t.Errorf("the owners are %s, want %s", got, want)
	}
}
