package group_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// mustPoll receives, and checks the outcomes of the acknowledgements.
func (b groupBench) mustPoll(t testing.TB, groups *group.Groups, wanted group.Receive, outcomes ...domain.Outcome) []domain.Delivery {
	t.Helper()
	received, err := groups.Poll(t.Context(), b.tenant, "g", wanted)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(received.Outcomes, outcomes) {
		t.Fatalf("the outcomes are %v; want %v", received.Outcomes, outcomes)
	}
	return received.Deliveries
}

// A receive with acknowledgements is one step and one save, also in a group that has no room without them.
func TestReceiveAcknowledgesInOneStep(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, streamNames(6)...)
	b.put(t, "g", domain.GroupDefinition{MaxInFlight: 2})
	s, network := b.through(t)
	var saves atomic.Int64
	count(network, "manifold_save_ledger", &saves)
	groups := groupsOf(s)
	first := b.mustPoll(t, groups, group.Receive{Batch: 2})
	second := b.mustPoll(t, groups, group.Receive{Batch: 2, Ack: attempts(first...)}, domain.OutcomeDone, domain.OutcomeDone)
	mustPositions(t, second, 3, 4)
	if n := saves.Load(); n != 2 {
		t.Errorf("two receives have made %d saves", n)
	}
	again := attempts(first[0], second[0])
	again[1].Attempt++
	again = append(again, domain.Attempt{EventID: domain.NewEventID(), Attempt: 1})
	if more := b.mustPoll(t, groups, group.Receive{Ack: again}, domain.OutcomeNotInFlight, domain.OutcomeNotInFlight, domain.OutcomeNotInFlight); len(more) > 0 {
		t.Errorf("the full group delivers %v", positions(more))
	}
	mustPositions(t, b.mustPoll(t, groups, group.Receive{Batch: 9, Ack: attempts(second...)}, domain.OutcomeDone, domain.OutcomeDone), 5, 6)
}

// The next event of a stream comes with the answer to the acknowledgement that frees it.
func TestReceiveAcknowledgesBeforeItDelivers(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-1", "order-1")
	b.put(t, "g", domain.GroupDefinition{Ordering: domain.OrderingStream})
	given := b.mustPoll(t, b.groups, group.Receive{})
	for position := int64(1); position <= 3; position++ {
		mustPositions(t, given, position)
		given = b.mustPoll(t, b.groups, group.Receive{Ack: attempts(given...)}, domain.OutcomeDone)
	}
	mustPositions(t, given)
}

// Events are acknowledged at once, though the receive waits for others. If it fails later, it still reports that.
func TestReceiveAcknowledgesBeforeItWaits(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1")
	b.put(t, "g", domain.GroupDefinition{})
	given := b.receive(t, "g", 1)
	ctx, cancel := context.WithCancel(t.Context())
	type result struct {
		received group.Received
		err      error
	}
	answer := make(chan result, 1)
	go func() {
		received, err := b.groups.Poll(ctx, b.tenant, "g", group.Receive{Wait: tablestest.Patience, Ack: attempts(given...)})
		answer <- result{received, err}
	}()
	for began := time.Now(); b.status(t, "g").InFlight > 0; {
		if time.Since(began) > tablestest.Patience {
			t.Fatal("the event is still in flight")
		}
		pause(t)
	}
	cancel()
	got := tablestest.Receive(t, answer, "the receive")
	if got.err == nil || !slices.Equal(got.received.Outcomes, []domain.Outcome{domain.OutcomeDone}) {
		t.Fatalf("it returns %+v, %v", got.received, got.err)
	}
}

// A member acknowledges events of any partition.
func TestMembersReceiveAcknowledges(t *testing.T) {
	t.Parallel()
	b, _ := partitioned(t, 8, nil)
	head := b.append(t, streamNames(40)...)
	member := b.join(t, b.groups)
	var done []domain.Outcome
	acked := make(map[int64]bool)
	wanted := group.Receive{Batch: 7, Member: member}
	for began := time.Now(); len(acked) < int(head); {
		if time.Since(began) > tablestest.Patience {
			t.Fatalf("%d of %d events are acknowledged", len(acked), head)
		}
		given := b.mustPoll(t, b.groups, wanted, done...)
		for _, d := range given {
			acked[d.Event.Position] = true
		}
		wanted.Ack, done = attempts(given...), slices.Repeat([]domain.Outcome{domain.OutcomeDone}, len(given))
	}
	if more := b.mustPoll(t, b.groups, wanted, done...); len(more) > 0 {
		t.Errorf("%v are delivered again", positions(more))
	}
}

// saving returns the groups of another process, whose first step, a receive of one event of g, is being saved. release
// lets it end, and waits for the receive.
func (b groupBench) saving(t *testing.T) (groups *group.Groups, release func()) {
	t.Helper()
	s, network := b.through(t)
	holding, released := make(chan struct{}), make(chan struct{})
	hold := sync.OnceFunc(func() {
		close(holding)
		<-released
	})
	network.Before("manifold_save_ledger", func() bool {
		hold()
		return true
	})
	groups = groupsOf(s)
	ended := make(chan error, 1)
	go func() {
		_, err := groups.Receive(context.Background(), b.tenant, "g", group.Receive{Batch: 1})
		ended <- err
	}()
	tablestest.Receive(t, holding, "the first save")
	release = sync.OnceFunc(func() {
		close(released)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(release)
	return groups, release
}

// If the acknowledgements cannot be queued, the receive does not wait either, and leases nothing.
func TestReceiveWithoutRoomForItsAnswer(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2", "order-3")
	b.put(t, "g", domain.GroupDefinition{})
	given := b.receive(t, "g", 1)
	groups, release := b.saving(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range group.MaxWaiting {
		go groups.Ack(ctx, b.tenant, "g", attempts(given...)) //nolint:errcheck // they only wait
	}
	for began := time.Now(); groups.AnswersWaiting(b.tenant, "g") < group.MaxWaiting; {
		if time.Since(began) > tablestest.Patience {
			t.Fatal("the answers do not wait")
		}
		pause(t)
	}
	_, err := groups.Poll(t.Context(), b.tenant, "g", group.Receive{Ack: attempts(given...)})
	tablestest.WantCode(t, err, domain.CodeTooManyRequests)
	if waiting := groups.Waiting(b.tenant, "g"); waiting != 1 {
		t.Errorf("%d receives wait", waiting)
	}
	cancel()
	release()
	mustPositions(t, b.mustPoll(t, groups, group.Receive{}), 3)
}

// Acknowledgements take effect even if the receive's context has ended when their step begins.
func TestReceiveAcknowledgesThoughItsContextEnds(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2", "order-3")
	b.put(t, "g", domain.GroupDefinition{})
	given := b.receive(t, "g", 1)
	groups, release := b.saving(t)
	ctx, cancel := context.WithCancel(t.Context())
	type result struct {
		received group.Received
		err      error
	}
	answer := make(chan result, 1)
	go func() {
		received, err := groups.Poll(ctx, b.tenant, "g", group.Receive{Ack: attempts(given...)})
		answer <- result{received, err}
	}()
	for began := time.Now(); groups.AnswersWaiting(b.tenant, "g") == 0; {
		if time.Since(began) > tablestest.Patience {
			t.Fatal("the answer does not wait")
		}
		pause(t)
	}
	cancel()
	release()
	got := tablestest.Receive(t, answer, "the receive")
	if got.err == nil || len(got.received.Deliveries) > 0 || !slices.Equal(got.received.Outcomes, []domain.Outcome{domain.OutcomeDone}) {
		t.Fatalf("it returns %+v, %v", got.received, got.err)
	}
	b.mustPoll(t, b.groups, group.Receive{Ack: attempts(given...)}, domain.OutcomeNotInFlight)
}
