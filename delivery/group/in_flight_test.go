package group_test

import (
	"testing"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// An event in flight counts in the process that delivered it last, so that each event counts once over all processes.
func TestInFlightEventsCountOnce(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	other, _ := startGroups(t, b.open(t), group.Observer{})
	b.append(t, "order-1", "order-2", "order-3", "order-4", "order-5")
	b.put(t, "g", domain.GroupDefinition{})
	want := func(here, there int) {
		t.Helper()
		if one, two := b.groups.InFlight(), other.InFlight(); one != here || two != there {
			t.Fatalf("the processes say that %d and %d are in flight; want %d and %d", one, two, here, there)
		}
	}
	receive := func(groups *group.Groups, batch int) []domain.Delivery {
		t.Helper()
		deliveries, err := groups.Receive(t.Context(), b.tenant, "g", group.Receive{Batch: batch})
		if err != nil {
			t.Fatal(err)
		}
		return deliveries
	}
	first := receive(b.groups, 3)
	second := receive(other, 10)
	want(3, 2)
	// Each may be answered in the other process: who has delivered it knows when it looks next.
	mustOutcomes(t, domain.OutcomeDone)(other.Ack(t.Context(), b.tenant, "g", attempts(first[0])))
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(second[0]), domain.Nack{Action: domain.NackPark}))
	want(2, 2)
	receive(other, 10)
	want(2, 1)
	// What is given back and delivered elsewhere counts there.
	mustOutcomes(t, domain.OutcomeDone)(b.groups.GiveBack(t.Context(), b.tenant, "g", attempts(first[1])))
	again := receive(other, 10)
	mustPositions(t, again, 2)
	receive(b.groups, 10)
	want(1, 2)
	mustOutcomes(t, domain.OutcomeDone)(other.Ack(t.Context(), b.tenant, "g", attempts(append(again, second[1])...)))
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(first[2])))
	want(0, 0)
}
