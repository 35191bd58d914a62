package group_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// crowd appends events of another category, more than one read of the log covers, and returns the head.
func (b groupBench) crowd(t testing.TB, events int) (head int64) {
	t.Helper()
	data := make([]string, 10_000)
	for i := range data {
		data[i] = "1"
	}
	for ; events > 0; events -= len(data) {
		head = tablestest.AppendTo(t, b.store, b.tenant, fmt.Sprintf("other-%d", events), "Happened", data...)
	}
	return head
}

func TestReceiveWithoutWaitFindsADistantEvent(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	head := b.crowd(t, 60_000)
	b.append(t, "order-1", "order-2")
	orders := domain.GroupDefinition{Selection: domain.Selection{Categories: []string{"order"}}}
	b.put(t, "g", orders)
	got, err := b.groups.Poll(t.Context(), b.tenant, "g", group.Receive{Search: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	mustPositions(t, got.Deliveries, head+1, head+2)
	got, err = b.groups.Poll(t.Context(), b.tenant, "g", group.Receive{Search: time.Minute})
	if err != nil || len(got.Deliveries) > 0 || got.Searching {
		t.Errorf("behind the last event a receive gives %+v, %v", got, err)
	}

	// A caller with a shorter search gets Searching, and reaches the events by asking again.
	orders.Partitions = 2
	b.put(t, "shared", orders)
	member, err := b.groups.Join(t.Context(), b.tenant, "shared", "a consumer")
	if err != nil {
		t.Fatal(err)
	}
	var found []domain.Delivery
	for searches := 0; ; searches++ {
		got, err := b.groups.Poll(t.Context(), b.tenant, "shared", group.Receive{Member: member.ID})
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, got.Deliveries...)
		if len(got.Deliveries) == 0 && !got.Searching {
			if searches == 0 {
				t.Error("the first receive is said to have looked through the whole log")
			}
			break
		}
	}
	if len(found) != 2 {
		t.Errorf("%d events were delivered until nothing was due", len(found))
	}
}

// An event that is far behind in a stream that was held is found, though nothing new is left in the log and reading is
// slow.
func TestReceiveFindsAnEventFarBackInAHeldStream(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	slow, network := b.through(t)
	network.Before("manifold_next_in_streams", func() bool {
		elapse(t, 300*time.Millisecond) // longer than a step may last
		return true
	})
	b.groups = groupsOf(slow)
	b.append(t, "order-1")
	b.append(t, "order-1")
	tablestest.AppendTo(t, b.store, b.tenant, "order-1", "Other", slices.Repeat([]string{"1"}, 50)...)
	last := b.append(t, "order-1")
	b.put(t, "g", domain.GroupDefinition{Ordering: domain.OrderingStream, Selection: domain.Selection{Types: []string{"Happened"}}})
	poll := func() []domain.Delivery {
		t.Helper()
		got, err := b.groups.Poll(t.Context(), b.tenant, "g", group.Receive{Search: time.Minute})
		if err != nil || got.Searching {
			t.Fatalf("a receive gives %+v, %v", got, err)
		}
		return got.Deliveries
	}
	ack := func(deliveries ...domain.Delivery) {
		t.Helper()
		mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(deliveries...)))
	}
	held := poll()
	mustPositions(t, held, 1)
	ack(held...)
	held = poll()
	mustPositions(t, held, 2)
	// Another process knows nothing of the stream but where it continues.
	b.groups = groupsOf(slow)
	ack(held...)
	mustPositions(t, poll(), last)
}

// A wait that ends during a search does not mean that nothing is due.
func TestShortWaitDoesNotEndASearch(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	head := b.crowd(t, 60_000)
	b.append(t, "order-1")
	b.put(t, "g", domain.GroupDefinition{Selection: domain.Selection{Categories: []string{"order"}}})
	var many sync.WaitGroup
	given := make(chan int64, 50)
	for range cap(given) {
		many.Go(func() {
			got, err := b.groups.Poll(t.Context(), b.tenant, "g", group.Receive{Wait: time.Millisecond, Search: time.Minute})
			if err != nil || got.Searching {
				t.Errorf("a receive gives %+v, %v", got, err)
			}
			for _, position := range positions(got.Deliveries) {
				given <- position
			}
		})
	}
	many.Wait()
	close(given)
	if position := <-given; position != head+1 || len(given) > 0 {
		t.Errorf("the event at %d was delivered, and %d others", position, len(given))
	}
}

func peekPositions(t testing.TB, found group.Peeked) string {
	t.Helper()
	var retrying []int64
	for _, r := range found.Retrying {
		if r.Event.ID != r.EventID || len(r.Event.Data) == 0 {
			t.Errorf("the retry of %s has the event %+v", r.EventID, r.Event)
		}
		retrying = append(retrying, r.Position)
	}
	for _, d := range found.InFlight {
		if len(d.Event.Data) == 0 || d.AckDeadline.IsZero() {
			t.Errorf("in flight is %+v", d)
		}
	}
	return fmt.Sprint("next ", positions(found.Next), " in flight ", positions(found.InFlight), " retrying ", retrying)
}

func TestPeekLeasesNothing(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2", "order-3", "order-1", "order-4", "order-2")
	b.put(t, "g", domain.GroupDefinition{Ordering: domain.OrderingStream, MaxAttempts: 2})
	peek := func(want string) group.Peeked {
		t.Helper()
		found, err := b.groups.Peek(t.Context(), b.tenant, "g", group.Peek{Partition: -1})
		if err != nil {
			t.Fatal(err)
		}
		if got := peekPositions(t, found); got != want || found.Searching {
			t.Errorf("a peek shows %s, searching %t; want %s", got, found.Searching, want)
		}
		return found
	}
	for range 5 { // more often than there are attempts
		peek("next [1 2 3 5] in flight [] retrying []")
	}
	two := b.receive(t, "g", 2)
	mustPositions(t, two, 1, 2)
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(two[0]), patiently))
	for range 5 {
		found := peek("next [3 5] in flight [2] retrying [1]")
		if r := found.Retrying[0]; r.Attempt != 1 || r.Reason != patiently.Reason || !r.DueAt.After(time.Now()) {
			t.Errorf("what waits for a retry is %+v", r)
		}
		if !found.InFlight[0].AckDeadline.Equal(two[1].AckDeadline) {
			t.Errorf("the deadline is %s; it was %s", found.InFlight[0].AckDeadline, two[1].AckDeadline)
		}
	}
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(two[1])))
	if _, err := b.groups.Pause(t.Context(), b.tenant, "g", true); err != nil {
		t.Fatal(err)
	}
	found := peek("next [3 5 6] in flight [] retrying [1]")
	if _, err := b.groups.Pause(t.Context(), b.tenant, "g", false); err != nil {
		t.Fatal(err)
	}
	rest := b.receive(t, "g", 10)
	if len(rest) != 3 {
		t.Errorf("%d events are delivered", len(rest))
	}
	for _, d := range rest {
		if d.Attempt != 1 {
			t.Errorf("the event at %d comes with attempt %d", d.Event.Position, d.Attempt)
		}
	}
	_ = found
	if s := b.status(t, "g"); s.Parked != 0 || s.InFlight != 3 || s.Retrying != 1 {
		t.Errorf("the status is %+v", s)
	}
}

// What is due again is shown as it would be delivered.
func TestPeekShowsRedeliveries(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2")
	b.quick(t, "g", func(d *domain.GroupDefinition) { d.AckTimeout, d.MaxAttempts = shortLease, 2 })
	first := b.receive(t, "g", 1)
	mustPositions(t, first, 1)
	elapse(t, time.Until(first[0].AckDeadline)+20*time.Millisecond)
	found, err := b.groups.Peek(t.Context(), b.tenant, "g", group.Peek{Limit: 1, Partition: -1})
	if err != nil {
		t.Fatal(err)
	}
	if got := peekPositions(t, found); got != "next [1] in flight [] retrying []" || found.Next[0].Attempt != 2 {
		t.Errorf("a peek shows %s, %+v", got, found.Next)
	}
	again := b.receive(t, "g", 1)
	mustPositions(t, again, 1)
	if again[0].Attempt != 2 {
		t.Errorf("it comes with attempt %d", again[0].Attempt)
	}
}

func TestPeekOfPartitions(t *testing.T) {
	t.Parallel()
	b, _ := partitioned(t, 4, nil)
	head := b.append(t, streamNames(40)...)
	found, err := b.groups.Peek(t.Context(), b.tenant, "g", group.Peek{Limit: 100, Partition: -1})
	if err != nil || int64(len(found.Next)) != head {
		t.Fatalf("%d of %d events are next, %v", len(found.Next), head, err)
	}
	of := make(map[int]int)
	for i, d := range found.Next {
		if of[d.Partition]++; d.Event.Position != int64(i+1) {
			t.Errorf("the event at %d is shown in place %d", d.Event.Position, i)
		}
	}
	for number := range 4 {
		found, err := b.groups.Peek(t.Context(), b.tenant, "g", group.Peek{Limit: 100, Partition: number})
		if err != nil || len(found.Next) != of[number] {
			t.Errorf("of partition %d %d events are next, %v; want %d", number, len(found.Next), err, of[number])
		}
	}
	if _, err := b.groups.Peek(t.Context(), b.tenant, "g", group.Peek{Partition: 4}); err == nil {
		t.Error("there is a partition 4")
	}
	if owners := b.owners(t); !owners[0].Owner.IsZero() {
		t.Errorf("a peek has made %s the owner", owners[0].Owner)
	}
}

// Nobody receives from the group. A later peek need not look again at what an earlier one has skipped.
func TestPeeksContinueWhereTheLastStopped(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	head := b.crowd(t, 60_000)
	b.append(t, "order-1")
	b.put(t, "g", domain.GroupDefinition{Selection: domain.Selection{Categories: []string{"order"}}})
	for {
		found, err := b.groups.Peek(t.Context(), b.tenant, "g", group.Peek{Partition: -1})
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Next) > 0 {
			mustPositions(t, found.Next, head+1)
			break
		}
		if !found.Searching {
			t.Fatal("there is said to be nothing")
		}
	}
	if s := b.status(t, "g"); s.ReadTo < 50_000 || s.InFlight > 0 {
		t.Errorf("the status is %+v", s)
	}
}

// A receive that does not wait looks at the log once, even if reading the ledger has taken longer than a step may last:
// what was appended before it may not have been announced yet.
func TestSlowReceiveLooksAtTheLog(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	slow, network := b.through(t)
	b.groups = groupsOf(slow) // they are not running, so nothing is announced
	head := b.append(t, "order-1")
	b.put(t, "g", domain.GroupDefinition{})
	mustPositions(t, b.receive(t, "g", 1), head)
	if _, err := b.groups.Seek(t.Context(), b.tenant, "g", domain.From{Position: head + 1}); err != nil {
		t.Fatal(err)
	}
	b.append(t, "order-1")
	network.Before("manifold_ledger", func() bool {
		elapse(t, 300*time.Millisecond) // longer than a step may last
		return true
	})
	mustPositions(t, b.receive(t, "g", 1), head+1)
}
