package group_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

func (b groupBench) receiveAs(t testing.TB, member domain.GroupMemberID, batch int) []domain.Delivery {
	t.Helper()
	deliveries, err := b.groups.Receive(t.Context(), b.tenant, "g", group.Receive{Batch: batch, Member: member, Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return deliveries
}

// A member receives what is due in all its partitions, up to its batch size.
func TestReceiveIsToppedUpFromAllPartitions(t *testing.T) {
	t.Parallel()
	b, _ := partitioned(t, 8, nil)
	b.groups.TopUpFor(time.Hour)
	head := int(b.append(t, streamNames(60)...))
	member := b.join(t, b.groups)
	first := b.receiveAs(t, member, head-15)
	if len(first) != head-15 {
		t.Errorf("%d events of %d were delivered; want %d", len(first), head, head-15)
	}
	second := b.receiveAs(t, member, head)
	if len(second) != 15 {
		t.Errorf("%d events were delivered then; want 15", len(second))
	}
	seen, of := make(map[int64]bool), make(map[int]bool)
	for _, d := range append(first, second...) {
		seen[d.Event.Position], of[d.Partition] = true, true
		if d.Attempt != 1 {
			t.Errorf("the event at %d comes with attempt %d", d.Event.Position, d.Attempt)
		}
	}
	if len(seen) != head || len(of) != 8 {
		t.Errorf("%d of %d events were delivered, of %d partitions", len(seen), head, len(of))
	}
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(append(first, second...)...)))
}

// A receive is topped up from few partitions if they have enough events in memory, because each saves its ledger.
func TestReceiveIsToppedUpFromFewPartitions(t *testing.T) {
	t.Parallel()
	b, _ := partitioned(t, 16, func(d *domain.GroupDefinition) { d.Ordering = domain.OrderingNone })
	b.groups.TopUpFor(time.Hour)
	const streams, each = 320, 5 // 100 events for each partition, on average
	for range each {
		b.append(t, streamNames(streams)...)
	}
	member := b.join(t, b.groups)
	seen := make(map[int64]bool)
	receive := func() (of map[int]bool) {
		deliveries := b.receiveAs(t, member, 200)
		if len(deliveries) != 200 {
			t.Fatalf("after %d events, %d were delivered", len(seen), len(deliveries))
		}
		of = make(map[int]bool)
		for _, d := range deliveries {
			seen[d.Event.Position], of[d.Partition] = true, true
		}
		return of
	}
	receive() // afterwards all partitions have events in memory
	if of := receive(); len(of) > 6 {
		t.Errorf("200 events came from %d partitions", len(of))
	}
	for range streams*each/200 - 2 {
		receive()
	}
	if len(seen) != streams*each {
		t.Errorf("%d events were delivered", len(seen))
	}
}

// However a receive is assembled, the events of a stream are delivered in order.
func TestToppedUpReceiveKeepsStreamsInOrder(t *testing.T) {
	t.Parallel()
	b, _ := partitioned(t, 5, func(d *domain.GroupDefinition) { d.Ordering = domain.OrderingNone })
	b.groups.TopUpFor(time.Hour)
	const streams, each = 12, 9
	for range each {
		b.append(t, streamNames(streams)...)
	}
	member := b.join(t, b.groups)
	versions := make(map[string]int64)
	for got := 0; got < streams*each; {
		deliveries := b.receiveAs(t, member, 20)
		if want := min(20, streams*each-got); len(deliveries) != want {
			t.Fatalf("%d events were delivered; want %d", len(deliveries), want)
		}
		for _, d := range deliveries {
			if d.Event.Version != versions[d.Event.Stream]+1 {
				t.Fatalf("of %s version %d comes after version %d", d.Event.Stream, d.Event.Version, versions[d.Event.Stream])
			}
			versions[d.Event.Stream]++
		}
		got += len(deliveries)
	}
}

// However many partitions have events, a receive stays within its limits.
func TestToppedUpReceiveIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	b, _ := partitioned(t, 6, nil)
	large := json.RawMessage(`"` + strings.Repeat("x", 700_000) + `"`)
	for n := range 24 {
		_, err := b.store.Append(t.Context(), b.tenant, domain.Append{Streams: []domain.StreamAppend{{
			Stream: fmt.Sprintf("order-%d", n), Expected: domain.Any, Events: []domain.NewEvent{{Type: "Large", Data: large}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	member := b.join(t, b.groups)
	for got := 0; got < 24; {
		deliveries := b.receiveAs(t, member, 100)
		bytes := 0
		for _, d := range deliveries {
			bytes += len(d.Event.Data)
		}
		if bytes > 8<<20 {
			t.Errorf("%d events of %d bytes were delivered", len(deliveries), bytes)
		}
		got += len(deliveries)
	}
}

// A receive that is cancelled while it is being filled keeps no event, neither of the first partition nor of the
// others.
func TestReceiveCancelledDuringTopUpLeasesNothing(t *testing.T) {
	t.Parallel()
	b, _ := partitioned(t, 4, nil)
	head := int(b.append(t, streamNames(30)...))
	ctx, leave := context.WithCancel(t.Context())
	s, network := b.through(t)
	var saves atomic.Int64
	network.Before("manifold_save_ledger", func() bool {
		if saves.Add(1) == 2 {
			leave()
		}
		return true
	})
	groups := groupsOf(s)
	groups.TopUpFor(time.Hour)
	member := b.join(t, groups)
	if _, err := groups.Receive(ctx, b.tenant, "g", group.Receive{Batch: 100, Member: member}); !errors.Is(err, context.Canceled) {
		t.Fatalf("the receive ends with %v", err)
	}
	for got := 0; got < head; {
		deliveries, err := groups.Receive(t.Context(), b.tenant, "g", group.Receive{Batch: 100, Member: member, Wait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range deliveries {
			if d.Base != d.Attempt-1 {
				t.Errorf("the event at %d comes with attempt %d, of which %d do not count", d.Event.Position, d.Attempt, d.Base)
			}
		}
		got += len(deliveries)
	}
}

// A partition that hangs does not delay the events of another, whose leases are running. What it delivers in the end
// goes back.
func TestToppedUpReceiveDoesNotWaitForAHangingPartition(t *testing.T) {
	t.Parallel()
	b, _ := partitioned(t, 4, nil)
	head := int(b.append(t, streamNames(30)...))
	s, network := b.through(t)
	var saves atomic.Int64
	released := make(chan struct{})
	network.Before("manifold_save_ledger", func() bool {
		if saves.Add(1) > 1 {
			<-released
		}
		return true
	})
	groups := groupsOf(s)
	groups.TopUpFor(100 * time.Millisecond)
	member := b.join(t, groups)
	receive := func() []domain.Delivery {
		deliveries, err := groups.Receive(t.Context(), b.tenant, "g", group.Receive{Batch: 100, Member: member, Wait: time.Minute})
		if err != nil {
			t.Error(err)
		}
		return deliveries
	}
	first := make(chan []domain.Delivery, 1)
	go func() { first <- receive() }()
	got := 0
	select {
	case deliveries := <-first:
		got = len(deliveries)
	case <-time.After(time.Minute):
		t.Error("a receive that has events waits for a partition that hangs")
	}
	close(released)
	for got < head && !t.Failed() {
		deliveries := receive()
		for _, d := range deliveries {
			if d.Base != d.Attempt-1 {
				t.Errorf("the event at %d comes with attempt %d, of which %d do not count", d.Event.Position, d.Attempt, d.Base)
			}
		}
		got += len(deliveries)
	}
}

// A receive that has given up a slow partition no longer looks at what that is still working on. It shows with the race
// detector.
func TestToppedUpReceiveDoesNotReadASlowPartition(t *testing.T) {
	t.Parallel()
	b, _ := partitioned(t, 4, nil)
	b.append(t, streamNames(30)...)
	const topUp = 20 * time.Millisecond
	const late = 50 * topUp
	s, network := b.through(t)
	var saves atomic.Int64
	network.Before("manifold_save_ledger", func() bool {
		if saves.Add(1) > 1 {
			<-time.After(late)
		}
		return true
	})
	groups := groupsOf(s)
	groups.TopUpFor(topUp)
	member := b.join(t, groups)
	if _, err := groups.Receive(t.Context(), b.tenant, "g", group.Receive{Batch: 100, Member: member, Wait: time.Minute}); err != nil {
		t.Fatal(err)
	}
	<-time.After(2 * late) // any other wait would take a lock that the steps take, too
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := groups.Run(ctx); err != nil { // returns when all steps have ended
		t.Fatal(err)
	}
}
