package group_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// Events that were read ahead are read again after an erasure has changed them.
func TestErasedEventsAreNotDelivered(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2", "order-3")
	b.put(t, "mail", domain.GroupDefinition{})
	if first := b.receive(t, "mail", 1); len(first) != 1 || string(first[0].Event.Data) != `{"n": 0}` {
		t.Fatalf("the first delivery is %+v", first)
	}
	none := func(pgx.Tx) error { return nil }
	tablestest.Must(t, b.store.Erase(t.Context(), b.tenant, eventlog.Erasing{Erasure: domain.NewUUID()}, []int64{2, 3}, none, none))
	_, err := b.store.ForgetReasons(t.Context(), b.tenant, []int64{2, 3})
	tablestest.Must(t, err)
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
