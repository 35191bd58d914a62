package tail

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
)

// quietLog is a log whose events came before anybody followed.
type quietLog struct {
	selection.Log
	events []domain.Event
}

func (l *quietLog) Head(context.Context, domain.TenantID) (domain.Head, error) {
	return domain.Head{Position: int64(len(l.events))}, nil
}

func (l *quietLog) LogSlice(_ context.Context, _ domain.TenantID, q domain.LogQuery) (domain.LogSlice, error) {
	return domain.LogSlice{Events: l.events[min(q.From-1, int64(len(l.events))):]}, nil
}

// While a filter runs, followers without a filter continue, and so does the tail. Followers with a filter wait for the
// turn.
func TestAFilterHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	log := &quietLog{}
	for i := range int64(3) {
		log.events = append(log.events, domain.Event{Position: i + 1, Stream: "order-1", Version: i + 1, Data: []byte("1")})
	}
	tails := New(Config{Store: log})
	tenant := domain.NewTenantID()
	follow := func(filter string) *Feed {
		feed, err := tails.Follow(t.Context(), tenant, domain.Follow{Selection: domain.Selection{Filter: filter}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(feed.Close)
		return feed
	}
	filtered, plain := follow("event.data == 1"), follow("")

	other := selection.Turn{Of: filtered.tail.asking}
	if err := other.Take(t.Context()); err != nil {
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
	case filtered.tail.asking <- struct{}{}:
	default:
		t.Error("the turn is not given back")
	}
}
