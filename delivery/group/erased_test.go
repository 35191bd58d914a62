package group_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// Events that were read ahead, by a group or for all groups of the tenant, are read again after an erasure has
// changed them.
func TestErasedEventsAreNotDelivered(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]int{"alone": 0, "shared": 8} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testErasedEvents(t, others)
		})
	}
}

// testErasedEvents has so many other groups, which share their reads if they are many.
func testErasedEvents(t *testing.T, others int) {
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2", "order-3")
	for i := range others {
		name := fmt.Sprint("other-", i)
		b.put(t, name, domain.GroupDefinition{})
		b.receive(t, name, 1)
	}
	b.put(t, "mail", domain.GroupDefinition{})
	if first := b.receive(t, "mail", 1); len(first) != 1 || string(first[0].Event.Data) != `{"n": 0}` {
		t.Fatalf("the first delivery is %+v", first)
	}
	none := func(pgx.Tx) error { return nil }
	tablestest.Must(t, b.store.Erase(t.Context(), b.tenant, eventlog.Erasing{Erasure: domain.NewUUID()}, []int64{2, 3}, none, none))
	b.groups.Forget(b.tenant)
	rest := b.receive(t, "mail", 2)
	if len(rest) != 2 {
		t.Fatalf("the next deliveries are %+v", rest)
	}
	for _, d := range rest {
		if d.Event.Gap == nil || d.Event.Gap.Reason != domain.GapErased {
			t.Errorf("event %d is delivered as %s", d.Event.Position, d.Event.Data)
		}
	}
}
