package group_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// toldOf returns a channel that has an element when another process than b's is notified of the group "g". What b has
// announced before does not count.
func (b groupBench) toldOf(t testing.TB) <-chan struct{} {
	t.Helper()
	there, heard, told := b.open(t), make(chan struct{}), make(chan struct{}, 1)
	ctx, stop := context.WithCancel(context.Background())
	var listening sync.WaitGroup
	var before atomic.Bool
	before.Store(true)
	listening.Go(func() {
		if err := there.ListenGroups(ctx, func(tenant domain.TenantID, name string) {
			switch {
			case tenant == domain.Everyone: // it is listening
				b.store.NotifyGroup(b.tenant, "before")
			case name == "before" && before.CompareAndSwap(true, false):
				close(heard)
			case name == "g" && !before.Load():
				select {
				case told <- struct{}{}:
				default:
				}
			}
		}); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		listening.Wait()
	})
	<-heard
	return told
}

// Other processes are notified of what is left after the receives waiting here were served.
func TestRemainingEventsAreAnnounced(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	for range 20 {
		b.append(t, "order-1")
	}
	b.put(t, "g", domain.GroupDefinition{MaxInFlight: 10})
	all := b.receive(t, "g", 10)
	told, looked := b.toldOf(t), make(chan struct{}, 1)
	s, network := b.through(t)
	network.After("manifold_ledger", func(int) bool {
		select {
		case looked <- struct{}{}:
		default:
		}
		return true
	})
	groups := groupsOf(s)
	waiting := make(chan []domain.Delivery)
	go func() {
		deliveries, err := groups.Receive(context.Background(), b.tenant, "g", group.Receive{Batch: 1, Wait: time.Minute})
		if err != nil {
			t.Error(err)
		}
		waiting <- deliveries
	}()
	<-looked
	mustOutcomes(t, domain.OutcomeDone)(groups.Ack(t.Context(), b.tenant, "g", attempts(all...)))
	mustPositions(t, <-waiting, 11)
	select {
	case <-told:
	case <-time.After(2 * time.Minute):
		t.Fatal("no notice that there is room for more")
	}
}

// Receives in other processes may be waiting for what is given back here.
func TestGivenBackEventsAreAnnounced(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2")
	b.put(t, "g", domain.GroupDefinition{})
	told, groups := b.toldOf(t), groupsOf(b.open(t))
	all, err := groups.Receive(t.Context(), b.tenant, "g", group.Receive{Batch: 2})
	if err != nil {
		t.Fatal(err)
	}
	mustOutcomes(t, domain.OutcomeDone)(groups.GiveBack(t.Context(), b.tenant, "g", attempts(all[0])))
	select {
	case <-told:
	case <-time.After(2 * time.Minute):
		t.Fatal("no notice that an event may be received again")
	}
}
