package group_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// deaf is a process that receives no notices of others.
func (b groupBench) deaf(t testing.TB) *group.Groups {
	return groupsOf(b.open(t))
}

// A receive without events was checked against the newest ledger of each of its partitions, not only one.
func TestMembersReceiveReadsEachLedgerAnew(t *testing.T) {
	t.Parallel()
	b, _ := partitioned(t, 16, nil)
	b.append(t, streamNames(64)...)
	member := b.join(t, b.groups)
	deaf := b.deaf(t)
	taken := b.all(t, deaf, member)
	for i, d := range taken {
		mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(d), domain.Nack{}))
		deliveries, err := deaf.Receive(t.Context(), b.tenant, "g", group.Receive{Member: member})
		if err != nil || len(deliveries) != 1 || deliveries[0].Event.ID != d.Event.ID {
			t.Fatalf("event %d, which is due, is not delivered: %+v, %v", i, deliveries, err)
		}
	}
}

// However often others ask, a waiting receive looks again after a while, even without a notice.
func TestWaitingReceiveReadsTheLedgerAgain(t *testing.T) {
	t.Parallel()
	b, _ := partitioned(t, 16, nil)
	b.append(t, streamNames(64)...)
	member := b.join(t, b.groups)
	deaf := b.deaf(t)
	deaf.AssignmentFor(200 * time.Millisecond) // after which a member's receive asks again
	taken := b.all(t, deaf, member)
	for i, d := range taken[:2] {
		answer := make(chan []domain.Delivery)
		go func() {
			deliveries, err := deaf.Receive(t.Context(), b.tenant, "g", group.Receive{Member: member, Wait: 30 * time.Second})
			if err != nil {
				t.Error(err)
			}
			answer <- deliveries
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		<-ctx.Done()
		cancel()
		began := time.Now()
		mustOutcomes(t, domain.OutcomeDone)(b.groups.Nack(t.Context(), b.tenant, "g", attempts(d), domain.Nack{}))
		mustPositions(t, <-answer, d.Event.Position)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("event %d was delivered after %s", i, took)
		}
	}
}

// Receives for which no events are in memory yet do not make the step read the ledger again.
func TestReceivesWithoutEventsInMemoryReadTheLedgerOnce(t *testing.T) {
	t.Parallel()
	const events, batch = 6000, 100
	b := newGroupBench(t)
	b.fill(t, events, 100, 0)
	b.put(t, "g", domain.GroupDefinition{MaxInFlight: events, AckTimeout: time.Hour})
	s, network := b.through(t)
	var reads atomic.Int64
	count(network, "l.ledger, l.read_to", &reads) // only in the statement that reads a ledger
	holding, queued := make(chan struct{}), make(chan struct{})
	var first sync.Once
	network.Before("manifold_save_ledger", func() bool {
		first.Do(func() {
			close(holding)
			<-queued
		})
		return true
	})
	groups := groupsOf(s)
	var consuming sync.WaitGroup
	var delivered atomic.Int64
	receive := func() {
		consuming.Go(func() {
			deliveries, err := groups.Receive(t.Context(), b.tenant, "g", group.Receive{Batch: batch, Wait: tablestest.Patience})
			if err != nil {
				t.Error(err)
			}
			delivered.Add(int64(len(deliveries)))
		})
	}
	receive()
	tablestest.Receive(t, holding, "the first save")
	for range events/batch - 1 { // the next step takes all of them, but no more than 2,000 events are in memory
		receive()
	}
	for began := time.Now(); groups.Waiting(b.tenant, "g") < events/batch && time.Since(began) < tablestest.Patience; {
		pause(t)
	}
	close(queued)
	consuming.Wait()
	if delivered.Load() != events {
		t.Errorf("%d of %d events are delivered", delivered.Load(), events)
	}
	if reads := reads.Load(); reads != 1 {
		t.Errorf("the ledger was read %d times", reads)
	}
}
