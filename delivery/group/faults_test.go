package group_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// Known faults of event delivery systems. Each has a test that this system does not have it.

// quick creates a group with shorter times than the API allows.
func (b groupBench) quick(t testing.TB, name string, change func(*domain.GroupDefinition)) {
	t.Helper()
	d := domain.GroupDefinition{
		From: "start", BatchSize: 100, MaxInFlight: 1000, AckTimeout: 50 * time.Millisecond, MaxAttempts: 3, BackoffMax: time.Millisecond, Ordering: domain.OrderingNone,
	}
	change(&d)
	if _, _, err := b.store.PutGroup(t.Context(), b.tenant, name, d, 1); err != nil {
		t.Fatal(err)
	}
}

var patiently = domain.Nack{Action: domain.NackRetry, Delay: time.Hour, Reason: "not now"}

func TestLaterAckDoesNotHideAnEarlierNack(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2", "order-3")
	b.put(t, "g", domain.GroupDefinition{})
	all := b.receive(t, "g", 3)
	mustPositions(t, all, 1, 2, 3)
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(all[2])))
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(all[0]), domain.Nack{Action: domain.NackRetry}))
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(all[1])))
	if s := b.status(t, "g"); s.Checkpoint != 3 || s.Oldest != 1 || s.Retrying != 1 {
		t.Fatalf("with the first event to be delivered again, the status is %+v", s)
	}
	again := b.wait(t, "g", 3, 10*time.Second)
	mustPositions(t, again, 1)
	if again[0].Attempt != 2 {
		t.Fatalf("it is attempt %d", again[0].Attempt)
	}
}

func TestEventsInFlightAreNotReadAgain(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-1", "order-2", "order-3")
	b.put(t, "g", domain.GroupDefinition{})
	mustPositions(t, b.receive(t, "g", 2), 1, 2)
	other, _ := startGroups(t, b.open(t), group.Observer{})
	deliveries, err := other.Receive(t.Context(), b.tenant, "g", group.Receive{Batch: 10})
	if err != nil {
		t.Fatal(err)
	}
	mustPositions(t, deliveries, 3, 4)
	mustPositions(t, b.receive(t, "g", 10))
}

func TestAFilterThatMatchesNothingAdvancesTheCheckpoint(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	for name, selection := range map[string]domain.Selection{
		"types":    {Types: []string{"Rare"}},
		"category": {Categories: []string{"rare"}},
		"filter":   {Filter: `event.data.n == -1`},
		"stream":   {Stream: "rare-1"},
	} {
		b.put(t, name, domain.GroupDefinition{Selection: selection})
		ctx, cancel := context.WithCancel(t.Context())
		waiting := make(chan error)
		go func() {
			_, err := b.groups.Receive(ctx, b.tenant, name, group.Receive{Wait: time.Minute})
			waiting <- err
		}()
		head := b.append(t, "order-1", "order-2", "order-3")
		for b.status(t, name).Checkpoint < head {
			pause(t)
		}
		cancel()
		<-waiting
	}
}

// pause waits a moment between two looks at another goroutine's progress.
func pause(t testing.TB) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(20 * time.Millisecond):
	}
}

// Timeouts and nacks count as attempts, across restarts, and the last attempt parks the event.
func TestAttemptsAreCounted(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1")
	b.quick(t, "g", func(d *domain.GroupDefinition) { d.MaxAttempts = 4 })
	for attempt := 1; attempt <= 4; attempt++ {
		groups, stop := startGroups(t, b.open(t), group.Observer{})
		deliveries, err := groups.Receive(t.Context(), b.tenant, "g", group.Receive{Wait: 10 * time.Second})
		for unavailable(err) { // on a slow machine the lease would be over before its answer; that counts no attempt
			deliveries, err = groups.Receive(t.Context(), b.tenant, "g", group.Receive{Wait: 10 * time.Second})
		}
		if err != nil {
			t.Fatal(err)
		}
		mustPositions(t, deliveries, 1)
		if deliveries[0].Attempt != attempt {
			t.Fatalf("delivery %d is attempt %d", attempt, deliveries[0].Attempt)
		}
		if attempt == 2 {
			mustOutcomes(t, domain.OutcomeDone)(groups.Nack(t.Context(), b.tenant, "g", attempts(deliveries...), domain.Nack{Action: domain.NackRetry, Reason: "no"}))
		}
		if attempt < 4 {
			stop()
		}
	}
	// Receiving has stopped, but the process that delivered last handles the timeout.
	for b.status(t, "g").Parked == 0 {
		pause(t)
	}
	letters, err := b.groups.DeadLetters(t.Context(), b.tenant, "g", 0, 10)
	if err != nil || len(letters) != 1 || letters[0].Attempt != 4 || letters[0].Event.Stream != "order-1" || string(letters[0].Event.Data) != `{"n": 0}` {
		t.Fatalf("the dead letters are %+v, %v", letters, err)
	}
	mustPositions(t, b.receive(t, "g", 10))
}

func TestLateNackDoesNotReleaseAnotherAttempt(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1")
	b.quick(t, "g", func(d *domain.GroupDefinition) { d.AckTimeout = shortLease })
	late := b.wait(t, "g", 1, 10*time.Second)
	mustPositions(t, late, 1)
	again := b.wait(t, "g", 1, 10*time.Second)
	mustPositions(t, again, 1)
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Extend(t.Context(), b.tenant, "g", attempts(again...), time.Hour))
	for _, action := range []domain.NackAction{domain.NackRetry, domain.NackPark, domain.NackSkip} {
		mustOutcomes(t, domain.OutcomeStale)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(late...), domain.Nack{Action: action}))
	}
	mustOutcomes(t, domain.OutcomeStale)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(late...)))
	mustOutcomes(t, domain.OutcomeStale)(b.groups.Extend(t.Context(), b.tenant, "g", attempts(late...), 0))
	mustPositions(t, b.receive(t, "g", 1))
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(again...)))
}

// A late answer takes effect as long as nobody else has received the event.
func TestLateAnswerCountsUntilTheEventIsRedelivered(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1")
	b.quick(t, "g", func(d *domain.GroupDefinition) { d.AckTimeout = shortLease })
	late := b.receive(t, "g", 1)
	mustPositions(t, late, 1)
	for time.Now().Before(late[0].AckDeadline.Add(10 * time.Millisecond)) {
		pause(t)
	}
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(late...)))
	mustPositions(t, b.receive(t, "g", 1))
}

func TestAnOrderedGroupHasOneEventOfAStreamInFlight(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-1", "order-2", "order-1", "order-2")
	b.put(t, "g", domain.GroupDefinition{Ordering: domain.OrderingStream})
	first := b.receive(t, "g", 10)
	mustPositions(t, first, 1, 3)
	mustPositions(t, b.receive(t, "g", 10))
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(first[0]), patiently))
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(first[1])))
	// A retry holds only its own stream.
	second := b.receive(t, "g", 10)
	mustPositions(t, second, 5)
	if s := b.status(t, "g"); s.Oldest != 1 || s.Checkpoint != 4 || s.ReadTo != 5 {
		t.Fatalf("with the first event waiting for its retry, the status is %+v", s)
	}
	b.append(t, "order-1", "order-3")
	mustPositions(t, b.receive(t, "g", 10), 7)
}

// A process that continues from the database alone finds what was left behind.
func TestAnotherProcessDeliversLeftEvents(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-1", "other-1", "order-1")
	b.put(t, "g", domain.GroupDefinition{Ordering: domain.OrderingStream, Selection: domain.Selection{Filter: `event.stream != "other-1" || event.version == 1`}})
	mustPositions(t, b.receive(t, "g", 10), 1, 3)
	for want := int64(2); want <= 4; want += 2 {
		groups, stop := startGroups(t, b.open(t), group.Observer{})
		last := b.event(t, map[int64]int64{2: 1, 4: 2}[want])
		mustOutcomes(t, domain.OutcomeDone)(groups.Ack(t.Context(), b.tenant, "g", []domain.Attempt{{EventID: last.ID, Attempt: 1}}))
		deliveries, err := groups.Receive(t.Context(), b.tenant, "g", group.Receive{})
		if err != nil {
			t.Fatal(err)
		}
		mustPositions(t, deliveries, want)
		stop()
	}
	if s := b.status(t, "g"); s.Oldest != 3 {
		t.Fatalf("the status is %+v", s)
	}
}

func (b groupBench) event(t testing.TB, position int64) domain.Event {
	t.Helper()
	events, err := b.store.ReadPositions(t.Context(), b.tenant, []int64{position})
	if err != nil || len(events) != 1 {
		t.Fatalf("the event at %d is %+v, %v", position, events, err)
	}
	return events[0]
}

// unavailable reports whether a call may be repeated, as consumers do.
func unavailable(err error) bool {
	failure, ok := errors.AsType[*domain.Error](err)
	return ok && failure.Code == domain.CodeUnavailable
}
