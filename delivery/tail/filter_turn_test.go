package tail

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// While a filter runs, followers without a filter continue, and so does the tail. Followers with a filter wait for the
// turn.
func TestRunningFilterDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	log, tenant := tablestest.OpenAgain(t, pgtest.Database(t)).Log, domain.NewTenantID()
	for range 3 {
		if _, err := log.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{
			{Stream: "order-1", Expected: domain.Any, Events: []domain.NewEvent{{Type: "Added", Data: []byte("1")}}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	tails := New(Config{Events: log})
	follow := func(filter string) *Feed {
		feed, err := tails.Follow(t.Context(), tenant, domain.Follow{Selection: domain.Selection{Filter: filter}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(feed.Close)
		return feed
	}
	filtered, plain := follow("event.data == 1"), follow("")

	other := selection.FilterTurn{Slot: filtered.tail.filterTurn}
	if err := other.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	slice, err := plain.Next(t.Context())
	if err != nil || len(slice.Entries) != 3 {
		t.Fatalf("whoever has no filter gets %d events, %v", len(slice.Entries), err)
	}
	entry := slice.Entries[0]
	entry.filtering.Lock()
	entry.Encoded(0, func(b []byte, _ *domain.Event) []byte { return append(b, 'x') })
	entry.leave()
	entry.filtering.Unlock()

	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := filtered.Next(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("without the turn a filter is asked: %v", err)
	}
	other.End()
	if slice, err := filtered.Next(t.Context()); err != nil || len(slice.Entries) != 3 {
		t.Fatalf("with the turn there are %d events, %v", len(slice.Entries), err)
	}
	select {
	case filtered.tail.filterTurn <- struct{}{}:
	default:
		t.Error("the turn is not given back")
	}
}
