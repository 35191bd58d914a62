package egress_test

import (
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/egress/egresstest"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// A process is killed while it publishes. Another process publishes what it had in flight at once, without waiting for
// the dead process's lease or membership to expire.
func TestEventsOfAKilledProcessAreSoonPublished(t *testing.T) {
	t.Parallel()
	b := egresstest.NewBench(t, 1)
	tenant, its := b.Tenants[0], egresstest.Group("out")
	b.Append(t, tenant, "order-1")
	s := &script{}
	config := of(s)
	config.Label, config.Died = "lively", func(label string) bool { return label == "killed" }
	first := b.Start(t, config)
	s.expect(t, "order-1@1")
	first.Stop()

	// The state that the killed process left.
	b.Append(t, tenant, "order-2")
	idle := config
	idle.Owns = func(domain.TenantID) bool { return false }
	killed := b.Start(t, idle).Groups
	member, err := killed.Join(t.Context(), tenant, its, "killed")
	if err != nil {
		t.Fatal(err)
	}
	leased, err := killed.Receive(t.Context(), tenant, its, group.Receive{Member: member.ID, Wait: time.Minute})
	if err != nil || len(leased) != 1 {
		t.Fatalf("leased are %+v, %v", leased, err)
	}
	_, err = b.DB.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(),
		"update manifold.subscription_members set joined_at = (joined_at at time zone 'utc' - interval '1 minute') at time zone 'utc' where member_id = $1", [16]byte(member.ID))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	b.Start(t, config)
	s.expect(t, "order-1@1", "order-2@1")
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s until the event was published", took)
	}
	egresstest.Until(t, "everything is settled", func() bool { return partitionOf(t, b, tenant).Checkpoint == 2 })
	var members []domain.GroupMember
	egresstest.Until(t, "the dead member is gone", func() bool {
		members, err = b.Store.GroupMembers(t.Context(), tenant, its)
		return err == nil && len(members) <= 1
	})
	if len(members) == 1 && members[0].ID == member.ID {
		t.Error("the dead member is left")
	}
}
