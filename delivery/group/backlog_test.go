package group_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// However many events of a held stream come first, a receive looks through only one slice of them. Answers are accepted
// between slices, and callers that ask again or wait come after them.
func TestBacklogOfAHeldStreamIsReadInSlices(t *testing.T) {
	t.Parallel()
	const backlog, slice = 15_000, 5000
	b := newGroupBench(t)
	for range backlog / slice {
		tablestest.AppendTo(t, b.store, b.tenant, "order-slow", "Happened", slices.Repeat([]string{`{}`}, slice)...)
	}
	b.append(t, "order-1", "order-2")
	b.put(t, "g", domain.GroupDefinition{Ordering: domain.OrderingStream, AckTimeout: time.Hour})
	var reads atomic.Int64
	groups := groupsOf(tablestest.OpenWith(t, b.db, func(c *tables.Config) { c.Observer.ReadEvents = func(int) { reads.Add(1) } }))
	receive := func(wait time.Duration) []domain.Delivery {
		t.Helper()
		deliveries, err := groups.Receive(t.Context(), b.tenant, "g", group.Receive{Batch: 1, Wait: wait})
		if err != nil {
			t.Fatal(err)
		}
		return deliveries
	}
	held := receive(time.Minute)
	mustPositions(t, held, 1)
	var found []domain.Delivery
	for rounds := 0; len(found) == 0; rounds++ {
		before := reads.Load()
		found = receive(0)
		// One that it makes, and one that continues while the ledger is saved.
		if reads := reads.Load() - before; reads > 3 {
			t.Errorf("a receive that does not wait has read %d slices of the log", reads)
		}
		mustOutcomes(t, domain.OutcomeDone)(groups.Extend(t.Context(), b.tenant, "g", attempts(held...), time.Hour))
	}
	mustPositions(t, found, backlog+1)
	mustPositions(t, receive(time.Minute), backlog+2)
}
