package group_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

func mustCode(t testing.TB, err error, code domain.Code, where string) {
	t.Helper()
	if failure, ok := errors.AsType[*domain.Error](err); !ok || failure.Code != code || failure.Where != where {
		t.Fatalf("the error is %v; want %s at %q", err, code, where)
	}
}

func TestGroupKeepsItsFixedSettings(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2")
	made := b.put(t, "g", domain.GroupDefinition{From: "end", Ordering: domain.OrderingStream})
	if made.BatchSize != 100 || made.MaxInFlight != 1000 || made.AckTimeout != 30*time.Second || made.MaxAttempts != 5 || made.BackoffMin != time.Second || made.BackoffMax != 5*time.Minute {
		t.Fatalf("the defaults are %+v", made.GroupDefinition)
	}
	again, created, err := b.groups.Put(t.Context(), b.tenant, "g", domain.GroupDefinition{From: "end", Ordering: domain.OrderingStream})
	if err != nil || created || again.Revision != made.Revision {
		t.Fatalf("put again it is %+v, created %t, %v", again, created, err)
	}
	for where, change := range map[string]domain.GroupDefinition{
		"from":       {From: "start", Ordering: domain.OrderingStream},
		"ordering":   {From: "end"},
		"partitions": {From: "end", Ordering: domain.OrderingStream, Partitions: 2},
	} {
		_, _, err := b.groups.Put(t.Context(), b.tenant, "g", change)
		mustCode(t, err, domain.CodeConflict, where)
	}
	for where, wrong := range map[string]domain.GroupDefinition{
		"batchSize":     {BatchSize: 1001},
		"maxInFlight":   {MaxInFlight: -1},
		"maxAttempts":   {MaxAttempts: 1001},
		"partitions":    {Partitions: 257},
		"ackTimeout":    {AckTimeout: time.Millisecond},
		"backoff.min":   {BackoffMin: 2 * time.Second, BackoffMax: time.Second},
		"backoff.max":   {BackoffMax: 25 * time.Hour},
		"ordering":      {Ordering: "sideways"},
		"from":          {From: "yesterday"},
		"source.stream": {Selection: domain.Selection{Stream: "order"}},
	} {
		_, _, err := b.groups.Put(t.Context(), b.tenant, "wrong", wrong)
		mustCode(t, err, domain.CodeInvalidRequest, where)
	}
	_, _, err = b.groups.Put(t.Context(), b.tenant, "wrong", domain.GroupDefinition{Selection: domain.Selection{Filter: "event."}})
	mustCode(t, err, domain.CodeInvalidDefinition, "filter")
	_, _, err = b.groups.Put(t.Context(), b.tenant, "Wrong", domain.GroupDefinition{})
	mustCode(t, err, domain.CodeInvalidRequest, "name")

	mustPositions(t, b.receive(t, "g", 10))
	b.append(t, "order-1")
	mustPositions(t, b.receive(t, "g", 10), 3)
}

// A change of a group's selection applies from the next delivery on.
func TestChangedSelectionAppliesAtOnce(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2", "other-1", "order-3", "other-2")
	b.put(t, "g", domain.GroupDefinition{})
	mustPositions(t, b.receive(t, "g", 2), 1, 2)
	b.put(t, "g", domain.GroupDefinition{Selection: domain.Selection{Categories: []string{"other"}}})
	mustPositions(t, b.receive(t, "g", 2), 3, 5)
}

// A waiting retry that no longer belongs to the group is dropped. Nobody receives an event that the group does not
// select.
func TestUnselectedRetriesAreDropped(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "bill-1", "order-2")
	b.put(t, "g", domain.GroupDefinition{Ordering: domain.OrderingStream})
	given := b.receive(t, "g", 2)
	mustPositions(t, given, 1, 2)
	if _, err := b.groups.Nack(t.Context(), b.tenant, "g", attempts(given...), domain.Nack{Action: domain.NackRetry}); err != nil {
		t.Fatal(err)
	}
	b.put(t, "g", domain.GroupDefinition{Ordering: domain.OrderingStream, Selection: domain.Selection{Categories: []string{"order"}}})
	mustPositions(t, b.receive(t, "g", 3), 1)
	mustPositions(t, b.receive(t, "g", 3), 3)
	status, err := b.groups.Get(t.Context(), b.tenant, "g")
	if err != nil || status.Partitions[0].Retrying != 0 || status.Partitions[0].InFlight != 2 {
		t.Errorf("%+v, %v", status.Partitions, err)
	}
}

func TestMissingGroupsAreNotFound(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	one := []domain.Attempt{{EventID: domain.NewEventID(), Attempt: 1}}
	look := func() {
		t.Helper()
		_, err := b.groups.Receive(t.Context(), b.tenant, "g", group.Receive{})
		mustCode(t, err, domain.CodeNotFound, "name")
		_, err = b.groups.Ack(t.Context(), b.tenant, "g", one)
		mustCode(t, err, domain.CodeNotFound, "name")
		_, err = b.groups.Seek(t.Context(), b.tenant, "g", domain.From{Position: 1})
		mustCode(t, err, domain.CodeNotFound, "name")
	}
	look()
	b.put(t, "g", domain.GroupDefinition{})
	mustOutcomes(t, domain.OutcomeNotInFlight)(b.groups.Ack(t.Context(), b.tenant, "g", one))
	waiting := make(chan error)
	other, _ := startGroups(t, b.open(t), group.Observer{})
	for _, groups := range []*group.Groups{b.groups, other} {
		go func() {
			_, err := groups.Receive(t.Context(), b.tenant, "g", group.Receive{Wait: time.Minute})
			waiting <- err
		}()
	}
	if err := b.groups.Delete(t.Context(), b.tenant, "g"); err != nil {
		t.Fatal(err)
	}
	mustCode(t, <-waiting, domain.CodeNotFound, "name")
	mustCode(t, <-waiting, domain.CodeNotFound, "name")
	look()

	// One of the same name knows nothing of the first, in whichever process.
	b.append(t, "order-1", "other-1")
	for _, definition := range []domain.GroupDefinition{
		{}, {Selection: domain.Selection{Categories: []string{"other"}}}, {Ordering: domain.OrderingStream}, {Partitions: 4},
	} {
		b.put(t, "g", definition)
		for _, groups := range []*group.Groups{b.groups, other} {
			deliveries, err := groups.Receive(t.Context(), b.tenant, "g", group.Receive{Batch: 1})
			switch {
			case definition.Partitions > 0:
				mustCode(t, err, domain.CodeInvalidRequest, "memberId")
			case err != nil:
				t.Fatal(err)
			case len(definition.Categories) > 0:
				if len(deliveries) > 0 {
					mustPositions(t, deliveries, 2)
				}
			case groups == b.groups:
				mustPositions(t, deliveries, 1)
			default:
				mustPositions(t, deliveries, 2)
			}
		}
		if err := b.groups.Delete(t.Context(), b.tenant, "g"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInvalidReceiveIsRefused(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.put(t, "g", domain.GroupDefinition{})
	b.put(t, "parts", domain.GroupDefinition{Partitions: 4})
	for _, test := range []struct {
		group, where string
		wanted       group.Receive
	}{
		{"g", "batch", group.Receive{Batch: 1001}},
		{"g", "batch", group.Receive{Batch: -1}},
		{"g", "memberId", group.Receive{Member: domain.NewGroupMemberID()}},
		{"parts", "memberId", group.Receive{}},
	} {
		_, err := b.groups.Receive(t.Context(), b.tenant, test.group, test.wanted)
		mustCode(t, err, domain.CodeInvalidRequest, test.where)
	}
	one := []domain.Attempt{{EventID: domain.NewEventID(), Attempt: 1}}
	for where, nack := range map[string]domain.Nack{
		"action": {Action: "throw"}, "delay": {Delay: 25 * time.Hour}, "reason": {Reason: strings.Repeat("a", 1001)},
	} {
		_, err := b.groups.Nack(t.Context(), b.tenant, "g", one, nack)
		mustCode(t, err, domain.CodeInvalidRequest, where)
	}
	_, err := b.groups.Extend(t.Context(), b.tenant, "g", one, 2*time.Hour)
	mustCode(t, err, domain.CodeInvalidRequest, "by")
}

// A waiting receive is woken by an append, by room after an answer, and by resuming the group, in this and in another
// process.
func TestReceiveWaits(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	other, _ := startGroups(t, b.open(t), group.Observer{})
	b.put(t, "g", domain.GroupDefinition{MaxInFlight: 1})
	for _, groups := range []*group.Groups{b.groups, other} {
		waiting := make(chan []domain.Delivery)
		wait := func() {
			deliveries, err := groups.Receive(t.Context(), b.tenant, "g", group.Receive{Wait: time.Minute})
			if err != nil {
				t.Error(err)
			}
			waiting <- deliveries
		}
		go wait()
		position := b.append(t, "order-1", "order-2") - 1
		first := <-waiting
		mustPositions(t, first, position)
		go wait()
		mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(first...)))
		second := <-waiting
		mustPositions(t, second, position+1)
		if _, err := b.groups.Pause(t.Context(), b.tenant, "g", true); err != nil {
			t.Fatal(err)
		}
		mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(second...)))
		position = b.append(t, "order-1")
		if deliveries, err := groups.Receive(t.Context(), b.tenant, "g", group.Receive{}); err != nil || len(deliveries) > 0 {
			t.Fatalf("a group that is paused delivers %+v, %v", deliveries, err)
		}
		go wait()
		if _, err := b.groups.Pause(t.Context(), b.tenant, "g", false); err != nil {
			t.Fatal(err)
		}
		third := <-waiting
		mustPositions(t, third, position)
		mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(third...), domain.Nack{Action: domain.NackSkip}))
	}
}

// A consumer that leaves while waiting leaves nothing leased.
func TestCancelledReceiveLeasesNothing(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.put(t, "g", domain.GroupDefinition{AckTimeout: time.Hour, MaxAttempts: 1})
	gone := errors.New("gone")
	for range 50 {
		ctx, cancel := context.WithCancelCause(t.Context())
		waiting := make(chan []domain.Delivery)
		go func() {
			deliveries, err := b.groups.Receive(ctx, b.tenant, "g", group.Receive{Wait: time.Minute})
			if err != nil && !errors.Is(err, gone) {
				t.Error(err)
			}
			waiting <- deliveries
		}()
		position := b.append(t, "order-1")
		cancel(gone)
		deliveries := <-waiting
		if len(deliveries) == 0 {
			deliveries = b.wait(t, "g", 10, 10*time.Second)
		}
		mustPositions(t, deliveries, position)
		mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(deliveries...)))
	}
}

// A receive is bounded in bytes, but always has room for one event.
func TestReceiveIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	big := json.RawMessage(`"` + strings.Repeat("x", 1_000_000) + `"`)
	for range 10 {
		if _, err := b.store.Append(t.Context(), b.tenant, domain.Append{Streams: []domain.StreamAppend{
			{Stream: "order-1", Expected: domain.Any, Events: []domain.NewEvent{{Type: "Happened", Data: big}, {Type: "Happened", Data: big}}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	b.quick(t, "g", func(d *domain.GroupDefinition) { d.AckTimeout = time.Hour })
	for range 2 { // new events, then such that are due again
		var all []domain.Delivery
		for len(all) < 20 {
			deliveries := b.wait(t, "g", 100, 10*time.Second)
			if len(deliveries) == 0 || len(deliveries) > 8 {
				t.Fatalf("%d MB were delivered at once", len(deliveries))
			}
			all = append(all, deliveries...)
		}
		mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(all...), domain.Nack{}))
	}
}

func TestDeadLettersAreReplayedAndDiscarded(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-1", "order-2")
	b.put(t, "g", domain.GroupDefinition{Ordering: domain.OrderingStream, MaxAttempts: 1})
	first := b.receive(t, "g", 10)
	mustPositions(t, first, 1, 3)
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(first...), domain.Nack{Action: domain.NackRetry, Reason: "no such customer"}))
	second := b.receive(t, "g", 10) // a parked event lets its stream continue
	mustPositions(t, second, 2)
	letters, err := b.groups.DeadLetters(t.Context(), b.tenant, "g", 0, 10)
	if err != nil || len(letters) != 2 || letters[0].Reason != "no such customer" || letters[0].Event.Position != 1 || letters[1].Event.Position != 3 {
		t.Fatalf("the dead letters are %+v, %v", letters, err)
	}
	if n, err := b.groups.Replay(t.Context(), b.tenant, "g", letters[0].EventID); err != nil || n != 1 {
		t.Fatalf("%d are replayed, %v", n, err)
	}
	mustPositions(t, b.receive(t, "g", 10)) // its stream is held
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(second...)))
	again := b.receive(t, "g", 10)
	mustPositions(t, again, 1)
	if again[0].Attempt != 2 || again[0].Replays != 1 {
		t.Fatalf("replayed it is %+v", again[0])
	}
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(again...), domain.Nack{Action: domain.NackPark, Reason: "still not"}))
	twice, err := b.groups.DeadLetters(t.Context(), b.tenant, "g", 0, 1)
	if err != nil || len(twice) != 1 || twice[0].Replays != 1 || twice[0].Reason != "still not" || !twice[0].FirstParkedAt.Equal(letters[0].FirstParkedAt) || !twice[0].ParkedAt.After(letters[0].ParkedAt) {
		t.Fatalf("parked again it is %+v, %v; it was first parked at %s", twice, err, letters[0].FirstParkedAt)
	}
	if n, err := b.groups.Replay(t.Context(), b.tenant, "g", domain.EventID{}); err != nil || n != 2 {
		t.Fatalf("%d are replayed, %v", n, err)
	}
	mustPositions(t, b.wait(t, "g", 1, 10*time.Second), 1)
	mustPositions(t, b.receive(t, "g", 10), 3)
	if n, err := b.groups.Discard(t.Context(), b.tenant, "g", domain.EventID{}); err != nil || n != 0 {
		t.Fatalf("%d are discarded, %v", n, err)
	}
}

// A seek drops what was in flight. Answers to it are stale, and everything after the new position is delivered with
// higher attempt numbers.
func TestSeek(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	head := b.append(t, "order-1", "order-1", "order-2", "order-3")
	b.put(t, "g", domain.GroupDefinition{Ordering: domain.OrderingStream})
	before := b.receive(t, "g", 10)
	mustPositions(t, before, 1, 3, 4)
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(before[1]), patiently))
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(before[2])))
	status, err := b.groups.Seek(t.Context(), b.tenant, "g", domain.From{Position: 3})
	if err != nil || status.Partitions[0].ReadTo != 2 || status.Partitions[0].InFlight != 0 || status.Partitions[0].Retrying != 0 {
		t.Fatalf("after the seek it is %+v, %v", status, err)
	}
	mustOutcomes(t, domain.OutcomeStale)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(before[:2]...)))
	again := b.receive(t, "g", 10)
	mustPositions(t, again, 3, 4)
	for _, d := range again {
		if d.Attempt != 2 {
			t.Fatalf("delivered again it is attempt %d", d.Attempt)
		}
	}
	mustOutcomes(t, domain.OutcomeStale)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(before...)))
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(again...)))

	if _, err := b.groups.Seek(t.Context(), b.tenant, "g", domain.From{Position: head + 3}); err != nil {
		t.Fatal(err)
	}
	b.append(t, "order-1", "order-1", "order-1", "order-1")
	mustPositions(t, b.receive(t, "g", 10), head+3)
	at := b.event(t, 1).RecordedAt
	if _, err := b.groups.Seek(t.Context(), b.tenant, "g", domain.From{Time: at}); err != nil {
		t.Fatal(err)
	}
	mustPositions(t, b.receive(t, "g", 1), 1)
	_, err = b.groups.Seek(t.Context(), b.tenant, "g", domain.From{EventID: domain.NewEventID()})
	mustCode(t, err, domain.CodeNotFound, "from")
}

func TestObserver(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	var delivered, acked, nacked, expired, parked, received atomic.Int64
	groups, _ := startGroups(t, b.store, group.Observer{
		Delivered: func(_ domain.TenantID, n int) { delivered.Add(int64(n)) },
		Acked: func(n int, held time.Duration) {
			acked.Add(int64(n))
			if held <= 0 {
				t.Errorf("they were held for %s", held)
			}
		},
		Nacked:   func(_ domain.NackAction, n int) { nacked.Add(int64(n)) },
		Expired:  func(n int) { expired.Add(int64(n)) },
		Parked:   func(n int) { parked.Add(int64(n)) },
		Received: func(_ time.Duration, n int) { received.Add(int64(n)) },
	})
	b.append(t, "order-1", "order-2", "order-3", "order-4")
	b.quick(t, "g", func(d *domain.GroupDefinition) { d.MaxAttempts = 2; d.AckTimeout = shortLease })
	receive := func() []domain.Delivery {
		deliveries, err := groups.Receive(t.Context(), b.tenant, "g", group.Receive{Wait: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return deliveries
	}
	first := receive()
	mustOutcomes(t, domain.OutcomeDone)(groups.Ack(t.Context(), b.tenant, "g", attempts(first[0])))
	mustOutcomes(t, domain.OutcomeDone)(groups.Nack(t.Context(), b.tenant, "g", attempts(first[1]), domain.Nack{Action: domain.NackPark}))
	mustOutcomes(t, domain.OutcomeDone)(groups.Nack(t.Context(), b.tenant, "g", attempts(first[2]), domain.Nack{Action: domain.NackSkip}))
	mustPositions(t, receive(), 4)
	for parked.Load() < 2 {
		pause(t)
	}
	if delivered.Load() != 5 || acked.Load() != 1 || nacked.Load() != 2 || expired.Load() != 2 || parked.Load() != 2 || received.Load() != 5 {
		t.Fatalf("told: %d delivered, %d acked, %d nacked, %d expired, %d parked, %d received",
			delivered.Load(), acked.Load(), nacked.Load(), expired.Load(), parked.Load(), received.Load())
	}
}
