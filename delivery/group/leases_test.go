package group_test

import (
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// lockLedger prevents saves of a partition's ledger of the group "g" until unlock is called.
func (b groupBench) lockLedger(t testing.TB, partition int) (unlock func()) {
	t.Helper()
	tx, err := b.db.Pool(t, pgtest.RoleSuperuser, 2).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(t.Context()) }) //nolint:errcheck // it may be over
	b.lockRow(t, tx, partition)
	return func() {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func (b groupBench) lockRow(t testing.TB, tx pgx.Tx, partition int) {
	t.Helper()
	var found int
	err := tx.QueryRow(t.Context(), "select l.partition from manifold.subscription_ledgers as l where l.tenant_id = $1 and l.name = 'g' and l.partition = $2 for update",
		b.tenant, partition).Scan(&found)
	if err != nil {
		t.Fatal(err)
	}
}

// begin receives from "g" in a separate goroutine.
func (b groupBench) begin(t testing.TB, wanted group.Receive) <-chan []domain.Delivery {
	received := make(chan []domain.Delivery, 1)
	go func() {
		deliveries, err := b.groups.Receive(t.Context(), b.tenant, "g", wanted)
		for unavailable(err) { // the lock that the test holds may outlast the database's patience on a slow machine
			deliveries, err = b.groups.Receive(t.Context(), b.tenant, "g", wanted)
		}
		if err != nil {
			t.Error(err)
		}
		received <- deliveries
	}()
	return received
}

// elapse waits until a lease has expired.
func elapse(t testing.TB, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		pause(t)
	}
}

const shortLease = 1200 * time.Millisecond

// mustBeTimely fails the test if a delivery has less than half of its lease left, or if an event appears twice.
func mustBeTimely(t testing.TB, deliveries []domain.Delivery) {
	t.Helper()
	seen := make(map[domain.EventID]int)
	for _, d := range deliveries {
		if left := time.Until(d.AckDeadline); left < shortLease/2-shortLease/8 {
			t.Errorf("attempt %d of the event at %d has %s left", d.Attempt, d.Event.Position, left)
		}
		if attempt, twice := seen[d.Event.ID]; twice {
			t.Errorf("the event at %d comes with the attempts %d and %d in one answer", d.Event.Position, attempt, d.Attempt)
		}
		seen[d.Event.ID] = d.Attempt
	}
}

func TestLeaseBeginsWhenItsAnswerLeaves(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2")
	b.quick(t, "g", func(d *domain.GroupDefinition) { d.AckTimeout = shortLease })
	unlock := b.lockLedger(t, 0)
	received := b.begin(t, group.Receive{Batch: 10})
	b.db.WaitForLock(t)
	elapse(t, shortLease)
	unlock()
	deliveries := <-received
	mustPositions(t, deliveries, 1, 2)
	mustBeTimely(t, deliveries)
	mustPositions(t, b.receive(t, "g", 10)) // nobody else gets them meanwhile
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(deliveries...)))
}

// Consecutive slow saves cost an event no attempt.
func TestSlowSavesCostNoAttempts(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1")
	b.quick(t, "g", func(d *domain.GroupDefinition) { d.AckTimeout, d.MaxAttempts = shortLease, 1 })
	unlock := b.lockLedger(t, 0)
	received := b.begin(t, group.Receive{Batch: 10})
	other := b.begin(t, group.Receive{Batch: 10, Wait: 2 * shortLease})
	b.db.WaitForLock(t)
	elapse(t, shortLease)
	unlock()
	given := <-received
	waiting := len(given) > 0
	if !waiting { // the other one, which waits for events, has it
		given = <-other
	}
	mustPositions(t, given, 1)
	if given[0].Attempt != 1 {
		t.Errorf("it comes with attempt %d", given[0].Attempt)
	}
	mustBeTimely(t, given)
	mustOutcomes(t, domain.OutcomeDone)(b.groups.Ack(t.Context(), b.tenant, "g", attempts(given...)))
	if waiting {
		<-other
	}
	if s := b.status(t, "g"); s.Parked != 0 || s.InFlight != 0 {
		t.Errorf("the status is %+v", s)
	}
}

// A partition whose save was slow is asked again for the same response. Its event appears once.
func TestReceiveReturnsEachEventOnce(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	data := make([]string, 2100) // more than are read at once, so that the partition is asked again
	for i := range data {
		data[i] = "1"
	}
	tablestest.AppendTo(t, b.store, b.tenant, "order-1", "Happened", data...)
	b.quick(t, "g", func(d *domain.GroupDefinition) {
		d.AckTimeout, d.Partitions, d.Ordering = shortLease, 1, domain.OrderingStream
	})
	b.groups.TopUpFor(time.Hour)
	member := b.join(t, b.groups)
	unlock := b.lockLedger(t, 0)
	received := b.begin(t, group.Receive{Batch: 10, Member: member, Wait: time.Minute})
	b.db.WaitForLock(t)
	elapse(t, shortLease)
	unlock()
	deliveries := <-received
	mustPositions(t, deliveries, 1)
	mustBeTimely(t, deliveries)
}

// What one partition has delivered does not wait for another until its leases expire.
func TestTopUpDoesNotOutlastALease(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, streamNames(30)...)
	b.quick(t, "g", func(d *domain.GroupDefinition) {
		d.AckTimeout, d.Partitions, d.Ordering = shortLease, 2, domain.OrderingStream
	})
	b.groups.TopUpFor(time.Hour)
	member := b.join(t, b.groups)
	unlock := b.lockLedger(t, 1)
	received := b.begin(t, group.Receive{Batch: 100, Member: member, Wait: time.Minute})
	deliveries := <-received // of one partition alone
	unlock()
	mustBeTimely(t, deliveries)
	if len(deliveries) == 0 || len(deliveries) == 30 {
		t.Errorf("%d events were delivered", len(deliveries))
	}
}

// An extension that was saved too slowly, and could not be renewed, is not reported as done.
func TestExtendThatCannotBeRenewedIsUnavailable(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1")
	b.quick(t, "g", func(d *domain.GroupDefinition) { d.AckTimeout = shortLease })
	held := b.receive(t, "g", 1)
	s, network := b.through(t)
	var once sync.Once
	network.After("manifold_save_ledger", func(int) bool {
		once.Do(func() {
			elapse(t, shortLease)
			b.lockLedger(t, 0) // for longer than the renewal waits
		})
		return true
	})
	_, err := groupsOf(s).Extend(t.Context(), b.tenant, "g", attempts(held...), 0)
	mustCode(t, err, domain.CodeUnavailable, "")
}

// An extension that was saved too slowly, while another consumer received the event, is stale.
func TestExtendOfALostEventIsStale(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1")
	b.quick(t, "g", func(d *domain.GroupDefinition) { d.AckTimeout = shortLease })
	held := b.receive(t, "g", 1)
	other := groupsOf(b.open(t))
	var taken []domain.Delivery
	s, network := b.through(t)
	var once sync.Once
	network.After("manifold_save_ledger", func(int) bool {
		once.Do(func() {
			var err error
			if taken, err = other.Receive(t.Context(), b.tenant, "g", group.Receive{Wait: time.Minute}); err != nil {
				t.Error(err)
			}
		})
		return true
	})
	mustOutcomes(t, domain.OutcomeStale)(groupsOf(s).Extend(t.Context(), b.tenant, "g", attempts(held...), 0))
	mustPositions(t, taken, 1)
}

// A delivery that was saved too slowly is dropped if another member has got the partition.
func TestASlowDeliveryDoesNotTakeAPartitionBack(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2")
	b.quick(t, "g", func(d *domain.GroupDefinition) {
		d.AckTimeout, d.Partitions, d.Ordering = shortLease, 1, domain.OrderingStream
	})
	s, network := b.through(t)
	slow, other := groupsOf(s), groupsOf(b.open(t))
	one := b.join(t, slow)
	var given []domain.Delivery
	var once sync.Once
	network.After("manifold_save_ledger", func(int) bool {
		once.Do(func() {
			elapse(t, shortLease)
			b.kill(t, one)
			var err error
			if given, err = other.Receive(t.Context(), b.tenant, "g", group.Receive{Member: b.join(t, other)}); err != nil {
				t.Error(err)
			}
		})
		return true
	})
	late, err := slow.Receive(t.Context(), b.tenant, "g", group.Receive{Member: one})
	if err != nil {
		t.Fatal(err)
	}
	mustPositions(t, given, 1) // by itself: the other is due
	mustPositions(t, late)
}
