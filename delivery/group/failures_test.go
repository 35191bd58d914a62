package group_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// If the outcome of an answer is unknown, the error says so, and the answer may be repeated. Events that were delivered
// to nobody are redelivered when their leases expire.
func TestUnknownOutcomeIsReportedAndHarmless(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2")
	b.quick(t, "g", func(d *domain.GroupDefinition) { d.AckTimeout = 3 * time.Second })
	s, network := b.through(t)
	b.groups = groupsOf(s)
	super := b.db.Pool(t, pgtest.RoleSuperuser, 1)
	var unknown atomic.Bool
	network.On(pgtest.AfterCommit("manifold_save_ledger", func() bool {
		if !unknown.CompareAndSwap(true, false) {
			return false
		}
		// As if others had saved twice since: then nobody can tell.
		if _, err := super.Exec(t.Context(), "update manifold.subscription_ledgers set revision = revision + 2, last_write = tenant_id"); err != nil {
			t.Error(err)
		}
		return true
	}))
	unknown.Store(true)
	_, err := b.groups.Receive(t.Context(), b.tenant, "g", group.Receive{Batch: 1})
	mustCode(t, err, domain.CodeOutcomeUnknown, "")
	other := b.receive(t, "g", 1)
	mustPositions(t, other, 2)
	// It is answered, however slow the machine is: its own time would be up soon, too.
	if _, err = b.groups.Ack(t.Context(), b.tenant, "g", attempts(other...)); err != nil {
		t.Fatal(err)
	}
	again := b.wait(t, "g", 1, 10*time.Second)
	mustPositions(t, again, 1)
	if again[0].Attempt != 2 {
		t.Fatalf("it is attempt %d", again[0].Attempt)
	}
	unknown.Store(true)
	_, err = b.groups.Ack(t.Context(), b.tenant, "g", attempts(again...))
	mustCode(t, err, domain.CodeOutcomeUnknown, "")
	mustOutcomes(t, domain.OutcomeNotInFlight)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(again...)))
}

// An unreadable log fails only the callers that want events.
func TestAnswersAreAcceptedWhileTheLogIsUnreadable(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2")
	b.put(t, "g", domain.GroupDefinition{})
	first := b.receive(t, "g", 1)
	s, network := b.through(t)
	var unread atomic.Bool
	unread.Store(true)
	network.Before("manifold_log_forward", func() bool { return !unread.Load() })
	groups := groupsOf(s)
	failed := make(chan error)
	for range 5 {
		go func() {
			_, err := groups.Receive(t.Context(), b.tenant, "g", group.Receive{Wait: time.Minute})
			failed <- err
		}()
		mustOutcomes(t, domain.OutcomeDone)(groups.Extend(t.Context(), b.tenant, "g", attempts(first...), time.Minute))
		mustCode(t, <-failed, domain.CodeUnavailable, "")
	}
	unread.Store(false)
	mustOutcomes(t, domain.OutcomeDone)(groups.Ack(t.Context(), b.tenant, "g", attempts(first...)))
	mustPositions(t, b.receive(t, "g", 10), 2)
}

// A held stream is skipped once. Then its events come one by one, in order, without those that the group does not
// select. What is read for them does not grow with the backlog.
func TestHeldStreamIsReadByItsIndex(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	const length, others = 900, 30
	for range others {
		streams := []string{fmt.Sprintf("order-%d", 1+b.append(t, "other-1"))}
		for range length / others {
			streams = append(streams, "order-slow")
		}
		b.append(t, streams...)
	}
	b.put(t, "g", domain.GroupDefinition{
		Ordering: domain.OrderingStream, AckTimeout: time.Hour, MaxInFlight: 100,
		Selection: domain.Selection{Categories: []string{"order"}, Filter: `event.stream != "order-slow" || event.version % 3 == 0`},
	})
	s, network := b.through(t)
	var returned atomic.Int64
	network.After("manifold_next_in_streams", func(rows int) bool {
		returned.Add(int64(rows))
		return true
	})
	process := func() *group.Groups { return groupsOf(s) }
	groups := process()
	receive := func(batch int) []domain.Delivery {
		deliveries, err := groups.Receive(t.Context(), b.tenant, "g", group.Receive{Batch: batch})
		if err != nil {
			t.Fatal(err)
		}
		return deliveries
	}
	first := receive(1000)
	if len(first) != others+1 {
		t.Fatalf("%d events are delivered at first; want one of each stream", len(first))
	}
	var slow domain.Delivery
	for _, d := range first {
		if d.Event.Stream == "order-slow" {
			slow = d
		}
	}
	for version := int64(3); version <= length; version += 3 {
		if slow.Event.Version != version {
			t.Fatalf("version %d is delivered; want %d", slow.Event.Version, version)
		}
		if version%150 == 0 {
			groups = process() // another process continues
		}
		mustOutcomes(t, domain.OutcomeDone)(groups.Ack(t.Context(), b.tenant, "g", attempts(slow)))
		next := receive(1000)
		if version+3 > length {
			mustPositions(t, next)
			break
		}
		if len(next) != 1 {
			t.Fatalf("behind version %d, %d events are delivered", version, len(next))
		}
		slow = next[0]
	}
	if returned := returned.Load(); returned > 2*length {
		t.Errorf("%d events were read of the stream, which has %d", returned, length)
	}
	if s := b.status(t, "g"); s.InFlight != others || s.Retrying != 0 {
		t.Errorf("in the end the status is %+v", s)
	}
}

// Waiting callers get an error when the service ends.
func TestWaitingReceivesFailAtShutdown(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.put(t, "g", domain.GroupDefinition{})
	groups, stop := startGroups(t, b.store, group.Observer{})
	waiting := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, err := groups.Receive(ctx, b.tenant, "g", group.Receive{Wait: time.Minute})
		waiting <- err
	}()
	for partitions, _ := groups.InUse(); partitions == 0; partitions, _ = groups.InUse() {
		pause(t)
	}
	stop()
	mustCode(t, <-waiting, domain.CodeUnavailable, "")
	_, err := groups.Receive(ctx, b.tenant, "g", group.Receive{})
	if failure, ok := errors.AsType[*domain.Error](err); !ok || failure.Code != domain.CodeUnavailable {
		t.Fatalf("behind the end, the error is %v", err)
	}
}
