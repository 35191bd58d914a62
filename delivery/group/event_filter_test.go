package group

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
)

// A group's filter runs in the tenant's turn, and no longer than a read may take. The next read continues with the
// remaining events.
func TestAGroupsFilterTakesTurns(t *testing.T) {
	t.Parallel()
	const events = 5
	log, tenant := &sharedReads{log: openLog(t), groups: func() int { return 1 }}, domain.NewTenantID()
	for range events {
		if _, err := log.log.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{
			{Stream: "order-1", Expected: domain.Any, Events: []domain.NewEvent{{Type: "Happened", Data: []byte("1")}}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	filtered, err := selection.New(domain.Selection{Filter: "event.data == 1"})
	if err != nil {
		t.Fatal(err)
	}
	all, err := selection.New(domain.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	filterTurn := make(chan struct{}, 1)
	a := &lookahead{log: log, tenant: tenant, selection: filtered, version: -1, maxBytes: aheadBytes, filterTurn: filterTurn}
	plain := &lookahead{log: log, tenant: tenant, selection: all, version: -1, maxBytes: aheadBytes, filterTurn: filterTurn}

	other := selection.FilterTurn{Slot: filterTurn}
	if err := other.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := plain.readMore(t.Context(), events); err != nil || plain.waiting() != events {
		t.Fatalf("without a filter %d events are read, %v", plain.waiting(), err)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := a.readMore(short, events); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("without the turn a filter is asked: %v", err)
	}
	other.End()
	for read := 1; read <= events; read++ { // as no time is given: one with each
		if _, err := a.readMore(t.Context(), events); err != nil || a.waiting() != read || a.scanned != int64(read) {
			t.Fatalf("read %d times, %d events are there up to %d, %v", read, a.waiting(), a.scanned, err)
		}
	}
	select {
	case filterTurn <- struct{}{}:
	default:
		t.Error("the turn is not given back")
	}
}
