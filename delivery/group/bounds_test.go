package group_test

import (
	"context"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// upTo receives events up to a position, without waiting.
func (b groupBench) upTo(t testing.TB, name string, batch int, position int64) []domain.Delivery {
	t.Helper()
	deliveries, err := b.groups.Receive(t.Context(), b.tenant, name, group.Receive{Batch: batch, UpTo: position})
	if err != nil {
		t.Fatal(err)
	}
	return deliveries
}

func (b groupBench) due(t testing.TB, name string) group.Due {
	t.Helper()
	due, err := b.groups.Due(t.Context(), b.tenant, name)
	if err != nil {
		t.Fatal(err)
	}
	return due
}

func mustDue(t testing.TB, due group.Due, now bool) {
	t.Helper()
	if due.Now != now {
		t.Fatalf("what is due is %+v; want now %t", due, now)
	}
}

func mustDueIn(t testing.TB, due group.Due, least, most time.Duration) {
	t.Helper()
	if in := time.Until(due.At); due.Now || in < least || in > most {
		t.Fatalf("it is due in %s (now: %t); want %s to %s", in, due.Now, least, most)
	}
}

func TestReceiveDeliversNothingNewAfterItsBound(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "other-1", "order-2", "order-1", "order-3")
	b.put(t, "g", domain.GroupDefinition{Selection: domain.Selection{Categories: []string{"order"}}, Ordering: domain.OrderingStream})
	first := b.upTo(t, "g", 10, 3)
	mustPositions(t, first, 1, 3)
	mustPositions(t, b.upTo(t, "g", 10, 3))
	due := b.due(t, "g")
	mustDueIn(t, due, 20*time.Second, domain.DefaultAckTimeout+time.Second) // the leases alone
	mustPositions(t, b.upTo(t, "g", 10, 4))                                 // order-1 is held
	mustPositions(t, b.receive(t, "g", 1), 5)
	// Redeliveries ignore the bound.
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(first[1]), domain.Nack{Delay: 0}))
	mustPositions(t, b.upTo(t, "g", 10, 1), 3)
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(first[0])))
	mustPositions(t, b.upTo(t, "g", 10, 1), 4) // it was passed over, and so is no longer new
	if _, err := b.groups.Receive(t.Context(), b.tenant, "g", group.Receive{UpTo: -1}); err == nil {
		t.Error("a negative bound was taken")
	}
}

func TestBoundedReceiveDoesNotBlockAnUnboundedOne(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1")
	b.put(t, "g", domain.GroupDefinition{})
	mustPositions(t, b.receive(t, "g", 1), 1)
	ctx, cancel := context.WithCancel(t.Context())
	bounded := make(chan error, 1)
	go func() {
		_, err := b.groups.Receive(ctx, b.tenant, "g", group.Receive{Wait: time.Hour, UpTo: 1})
		bounded <- err
	}()
	free := make(chan []domain.Delivery, 1)
	go func() {
		deliveries, _ := b.groups.Receive(ctx, b.tenant, "g", group.Receive{Wait: time.Minute})
		free <- deliveries
	}()
	b.append(t, "order-1")
	mustPositions(t, <-free, 2)
	cancel()
	if err := <-bounded; err == nil {
		t.Error("the one with a bound was given something")
	}
}

func TestGroupEndsAtItsLastPosition(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2", "order-3")
	b.put(t, "g", domain.GroupDefinition{From: "2", To: 3})
	mustPositions(t, b.receive(t, "g", 1), 2)
	b.append(t, "order-4")
	last := b.receive(t, "g", 10)
	mustPositions(t, last, 3)
	mustPositions(t, b.receive(t, "g", 10))
	if s := b.status(t, "g"); s.ReadTo != 3 {
		t.Errorf("it has read up to %d", s.ReadTo)
	}
	if _, _, err := b.groups.Put(t.Context(), b.tenant, "wrong", domain.GroupDefinition{To: -1}); err == nil {
		t.Error("a negative last position was taken")
	}
	// With another consumer it continues.
	b.put(t, "g", domain.GroupDefinition{To: 10})
	mustPositions(t, b.receive(t, "g", 10), 4)
}

func TestEventsAreDeliveredWhenTheirDelayIsOver(t *testing.T) {
	t.Parallel()
	const delay = 600 * time.Millisecond
	b := newGroupBench(t)
	b.put(t, "g", domain.GroupDefinition{Selection: domain.Selection{Categories: []string{"order"}}, Delay: delay})
	b.append(t, "other-1", "order-1")
	mustPositions(t, b.receive(t, "g", 10))
	due := b.due(t, "g")
	if due.Now || due.At.IsZero() || time.Until(due.At) > delay {
		t.Fatalf("what is due is %+v", due)
	}
	if s := b.status(t, "g"); s.ReadTo > 1 {
		t.Errorf("it has passed an event that is too young: %+v", s)
	}
	first := b.wait(t, "g", 10, time.Minute)
	mustPositions(t, first, 2)
	if young := first[0].Event.RecordedAt.Add(delay); time.Now().Before(young) {
		t.Errorf("it was delivered %s too early", time.Until(young))
	}
	// A retry does not wait for the delay, and an event of the same moment neither.
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(first...), domain.Nack{Delay: 0}))
	mustPositions(t, b.receive(t, "g", 10), 2)
	b.append(t, "order-1", "order-2")
	mustPositions(t, b.wait(t, "g", 10, time.Minute), 3, 4)
	if _, _, err := b.groups.Put(t.Context(), b.tenant, "wrong", domain.GroupDefinition{Delay: domain.MaxDelay + 1}); err == nil {
		t.Error("a delay that is too long was taken")
	}
}

func TestDue(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.put(t, "g", domain.GroupDefinition{MaxInFlight: 2, AckTimeout: time.Minute, Ordering: domain.OrderingStream})
	mustPositions(t, b.receive(t, "g", 10))
	if due := b.due(t, "g"); due.Now || !due.At.IsZero() {
		t.Fatalf("something is due in an empty log: %+v", due)
	}
	b.append(t, "order-1", "order-1", "order-2", "order-3")
	first := b.receive(t, "g", 1)
	mustPositions(t, first, 1)
	mustDue(t, b.due(t, "g"), true) // order-2
	second := b.receive(t, "g", 1)
	mustPositions(t, second, 3)
	mustDueIn(t, b.due(t, "g"), 50*time.Second, time.Minute+time.Second) // there is no room, but for what expires
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(first...)))
	mustDue(t, b.due(t, "g"), true) // order-1's next one
	third := b.receive(t, "g", 1)
	mustPositions(t, third, 2)
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(third...)))
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(second...), domain.Nack{Delay: 20 * time.Second}))
	fourth := b.receive(t, "g", 1)
	mustPositions(t, fourth, 4)
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(fourth...)))
	mustPositions(t, b.receive(t, "g", 10))
	mustDueIn(t, b.due(t, "g"), 10*time.Second, 21*time.Second) // the retry

	if _, err := b.groups.Pause(t.Context(), b.tenant, "g", true); err != nil {
		t.Fatal(err)
	}
	mustPositions(t, b.receive(t, "g", 10))
	if due := b.due(t, "g"); due.Now || !due.At.IsZero() {
		t.Fatalf("something is due in a paused group: %+v", due)
	}
	_, err := b.groups.Due(t.Context(), b.tenant, "nowhere")
	mustCode(t, err, domain.CodeNotFound, "name")
}

func TestReplayIsDue(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1")
	b.put(t, "g", domain.GroupDefinition{})
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(b.receive(t, "g", 1)...), domain.Nack{Action: domain.NackPark}))
	mustPositions(t, b.receive(t, "g", 1))
	mustDue(t, b.due(t, "g"), false)
	if _, err := b.groups.Replay(t.Context(), b.tenant, "g", domain.EventID{}); err != nil {
		t.Fatal(err)
	}
	mustPositions(t, b.receive(t, "g", 1), 1)
}

// A change of a group in this process calls Changed. A mere receive does not.
func TestChangesOfGroupsAreReported(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	var told []string
	groups := group.New(group.Config{Store: b.store.GroupTables, Events: b.store.Log, Log: quiet, Changed: func(tenant domain.TenantID, name string) {
		if tenant == b.tenant {
			told = append(told, name)
		}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- groups.Run(ctx) }()
	b.groups = groups
	b.append(t, "order-1")
	name := domain.ServiceGroup(domain.ServiceWebhook, "mail")
	b.put(t, name, domain.GroupDefinition{})
	parked := b.receive(t, name, 1)
	mustOutcomes(t, domain.OutcomeDone)(groups.Nack(ctx, b.tenant, name, attempts(parked...), domain.Nack{Action: domain.NackPark}))
	for _, change := range []func() error{
		func() error { _, err := groups.Pause(ctx, b.tenant, name, true); return err },
		func() error { _, err := groups.Replay(ctx, b.tenant, name, domain.EventID{}); return err },
		func() error { _, err := groups.Discard(ctx, b.tenant, name, domain.EventID{}); return err },
		func() error { _, err := groups.Seek(ctx, b.tenant, name, domain.From{}); return err },
		func() error { return groups.Delete(ctx, b.tenant, name) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(told) != 6 {
		t.Errorf("6 changes were reported as %q", told)
	}
}

// A group of a tenant's own has no dot in its name; a service group's kind is one of those that there are.
func TestNamesOfServiceGroups(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	for name, good := range map[string]bool{
		"webhook.mail": true, "replay.mail": true, "changes.process.state": true, "egress.a-b_c": true, "mail": true,
		"mail.webhook": false, "webhook.": false, "webhook.Mail": false, ".webhook": false, "a.b": false, "webhook.a..b": false,
	} {
		if _, _, err := b.groups.Put(t.Context(), b.tenant, name, domain.GroupDefinition{}); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// What is due is known without a receive, which leases nothing; and what passes by that is not the group's is none of
// it.
func TestDueReadsTheLog(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "other-1", "other-2")
	b.put(t, "g", domain.GroupDefinition{Selection: domain.Selection{Categories: []string{"order"}, Filter: "event.data.n == 1"}})
	if due := b.due(t, "g"); due.Now || !due.At.IsZero() {
		t.Fatalf("something is due: %+v", due)
	}
	b.append(t, "order-1") // its n is 0
	other, _ := startGroups(t, b.open(t), group.Observer{})
	if due, err := other.Due(t.Context(), b.tenant, "g"); err != nil || due.Now || !due.At.IsZero() {
		t.Fatalf("something is due in another process: %+v, %v", due, err)
	}
	b.append(t, "other-1", "order-1")
	for due := (group.Due{}); !due.Now; pause(t) { // it may not have heard of the append yet
		var err error
		if due, err = other.Due(t.Context(), b.tenant, "g"); err != nil {
			t.Fatal(err)
		}
	}
	if s := b.status(t, "g"); s.InFlight != 0 {
		t.Errorf("%d events are leased", s.InFlight)
	}
	mustPositions(t, b.receive(t, "g", 10), 5)
}
