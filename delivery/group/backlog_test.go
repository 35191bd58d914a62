package group_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// readingStore counts the reads of the log.
type readingStore struct {
	*tables.Tables
	reads atomic.Int64
}

func (s *readingStore) LogSlice(ctx context.Context, tenant domain.TenantID, q domain.LogQuery) (domain.LogSlice, error) {
	s.reads.Add(1)
	return s.Tables.LogSlice(ctx, tenant, q)
}

// However many events of a held stream come first, a receive looks through only one slice of them. Answers are accepted
// between slices, and callers that ask again or wait come after them.
func TestABacklogOfAHeldStreamIsPassedInSlices(t *testing.T) {
	t.Parallel()
	const backlog, slice = 15_000, 5000
	b := newGroupBench(t)
	for range backlog / slice {
		tablestest.AppendTo(t, b.store, b.tenant, "order-slow", "Happened", slices.Repeat([]string{`{}`}, slice)...)
	}
	b.append(t, "order-1", "order-2")
	b.put(t, "g", domain.GroupDefinition{Ordering: domain.OrderingStream, AckTimeout: time.Hour})
	s := &readingStore{Tables: b.store}
	groups := group.New(group.Config{Store: s, Log: quiet})
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
		before := s.reads.Load()
		found = receive(0)
		// One that it makes, and one that continues while the ledger is saved.
		if reads := s.reads.Load() - before; reads > 3 {
			t.Errorf("a receive that does not wait has read %d slices of the log", reads)
		}
		mustOutcomes(t, domain.OutcomeDone)(groups.Extend(t.Context(), b.tenant, "g", attempts(held...), time.Hour))
	}
	mustPositions(t, found, backlog+1)
	mustPositions(t, receive(time.Minute), backlog+2)
}
