package group_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// A receive that waits while nothing may be delivered costs next to nothing: without room although retries are due, in
// a paused group, and with a held stream.
func TestWaitingWithoutDeliverableEventsIsIdle(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-1", "order-2", "order-3")
	for name, prepare := range map[string]func(t *testing.T, name string){
		"full": func(t *testing.T, name string) {
			b.put(t, name, domain.GroupDefinition{MaxInFlight: 1, AckTimeout: time.Hour})
			first := b.receive(t, name, 1)
			mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, name, attempts(first...), patiently))
			second := b.receive(t, name, 1)
			mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, name, attempts(second...), domain.Nack{Delay: 0}))
			mustPositions(t, b.receive(t, name, 1), 2)
		},
		"paused": func(t *testing.T, name string) {
			b.put(t, name, domain.GroupDefinition{})
			if _, err := b.groups.Pause(t.Context(), b.tenant, name, true); err != nil {
				t.Fatal(err)
			}
		},
		"held": func(t *testing.T, name string) {
			b.put(t, name, domain.GroupDefinition{Ordering: domain.OrderingStream, AckTimeout: time.Hour})
			mustPositions(t, b.receive(t, name, 10), 1, 3, 4)
		},
		"full with a retry due": func(t *testing.T, name string) {
			b.put(t, name, domain.GroupDefinition{MaxInFlight: 2, AckTimeout: time.Hour})
			both := b.receive(t, name, 2)
			// It is due at once, but the room is taken before its redelivery.
			b.noticeInterval(t, name, true)
			mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, name, attempts(both[0]), domain.Nack{Delay: time.Millisecond}))
			b.put(t, name, domain.GroupDefinition{MaxInFlight: 1, AckTimeout: time.Hour})
			b.noticeInterval(t, name, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			its := "g-" + strings.ReplaceAll(name, " ", "-")
			prepare(t, its)
			s, network := b.through(t)
			var calls atomic.Int64
			for _, statement := range []string{"manifold_ledger", "manifold_save_ledger", "manifold_log_forward", "manifold_at_positions"} {
				count(network, statement, &calls)
			}
			ctx, cancel := context.WithCancel(context.Background())
			running := runGroupsOf(t, ctx, s)
			deliveries, err := running.groups.Receive(t.Context(), b.tenant, its, group.Receive{Wait: 1500 * time.Millisecond})
			if err != nil || len(deliveries) > 0 {
				t.Errorf("%+v are delivered, %v", deliveries, err)
			}
			// One look at the beginning, one when the notices are listened to, and one or two in the time.
			if calls := calls.Load(); calls > 10 {
				t.Errorf("while it waited, the database was asked %d times", calls)
			}
			cancel()
			running.done.Wait()
		})
	}
}

func (b groupBench) noticeInterval(t testing.TB, name string, paused bool) {
	t.Helper()
	if _, err := b.groups.Pause(t.Context(), b.tenant, name, paused); err != nil {
		t.Fatal(err)
	}
}

// A group that nobody uses is dropped with its memory, and is loaded again when somebody uses it.
func TestUnusedGroupIsForgotten(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2", "order-3")
	b.put(t, "g", domain.GroupDefinition{})
	first := b.receive(t, "g", 1)
	b.groups.Sweep(time.Now())
	if partitions, bytes := b.groups.InUse(); partitions != 1 || bytes == 0 {
		t.Fatalf("%d partitions are in memory, with %d bytes", partitions, bytes)
	}
	later := time.Now().Add(2 * time.Minute)
	for {
		b.groups.Sweep(later)
		if partitions, bytes := b.groups.InUse(); partitions == 0 {
			if bytes != 0 {
				t.Fatalf("%d bytes are in memory", bytes)
			}
			break
		}
		pause(t) // its goroutine is about to end
	}
	mustPositions(t, b.receive(t, "g", 1), 2)
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(first...)))
}

// If groups together use too much memory, each reads no more than it needs, and continues.
func TestGroupsMemoryIsBounded(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.fill(t, 3000, 100, 0)
	groups := group.New(group.Config{Store: b.store.GroupTables, Events: b.store.Log, Log: quiet, Bytes: 1})
	for _, ordering := range []domain.Ordering{domain.OrderingNone, domain.OrderingStream} {
		name := "g-" + string(ordering)
		b.put(t, name, domain.GroupDefinition{Ordering: ordering})
		for acked := 0; acked < 3000; {
			deliveries, err := groups.Receive(t.Context(), b.tenant, name, group.Receive{Batch: 100})
			if err != nil || len(deliveries) == 0 {
				t.Fatalf("behind %d events, %d are delivered, %v", acked, len(deliveries), err)
			}
			mustOutcomes(t, domain.OutcomeDone)(groups.Ack(t.Context(), b.tenant, name, attempts(deliveries...)))
			acked += len(deliveries)
			if _, bytes := groups.InUse(); acked > 2000 && bytes > 1<<20 {
				t.Fatalf("%d bytes are in memory", bytes)
			}
		}
	}
}

// The number of receives waiting in a group is limited.
func TestReceivesThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.put(t, "g", domain.GroupDefinition{})
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	var refused atomic.Int64
	some := make(chan struct{})
	for range 1010 {
		waiting.Go(func() {
			_, err := b.groups.Receive(ctx, b.tenant, "g", group.Receive{Wait: time.Minute})
			if failure, ok := errors.AsType[*domain.Error](err); ok && failure.Code == domain.CodeTooManyRequests {
				if refused.Add(1) == 10 {
					close(some)
				}
			}
		})
	}
	<-some
	cancel()
	waiting.Wait()
	if refused.Load() != 10 {
		t.Fatalf("%d were refused", refused.Load())
	}
	b.append(t, "order-1")
	mustPositions(t, b.wait(t, "g", 1, 10*time.Second), 1)
}

// Waiting groups of one tenant have their ledgers checked together, and still find what another process has changed
// without a notice.
func TestWaitingGroupsRecheckTogether(t *testing.T) {
	t.Parallel()
	const groups = 15
	b := newGroupBench(t)
	b.append(t, "order-1")
	s, network := b.through(t)
	var ledgers, together atomic.Int64
	count(network, "manifold_ledger", &ledgers)
	count(network, "manifold_ledger_revisions", &together)
	waiting := groupsOf(s) // it does not listen for notices
	name := func(i int) string { return fmt.Sprint("g", i) }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	found := make(chan int, groups)
	var receives sync.WaitGroup
	for i := range groups {
		b.put(t, name(i), domain.GroupDefinition{AckTimeout: time.Hour})
		mustPositions(t, b.receive(t, name(i), 1), 1)
		receives.Go(func() {
			deliveries, err := waiting.Receive(ctx, b.tenant, name(i), group.Receive{Wait: 30 * time.Second})
			if err == nil && len(deliveries) == 1 {
				found <- i
			}
		})
	}
	// Each reads its ledger when it begins. A recheck shows that the last of these reads has been answered.
	for ledgers.Load() < groups || together.Load() == 0 {
		pause(t)
	}
	if _, err := b.groups.Seek(t.Context(), b.tenant, name(3), domain.From{Position: 1}); err != nil {
		t.Fatal(err)
	}
	if i := <-found; i != 3 {
		t.Errorf("group %d was given an event; want 3", i)
	}
	if ledgers, together := ledgers.Load(), together.Load(); together == 0 || together > groups/3 || ledgers > groups+groups/3 {
		t.Errorf("%d groups read %d ledgers one by one, and revisions %d times", groups, ledgers, together)
	}
	cancel()
	receives.Wait()
}
