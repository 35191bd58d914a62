package group_test

import (
	"context"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables"
)

// tellingStore records when other processes are notified of a group.
type tellingStore struct {
	*tables.Tables
	told   chan string
	looked chan struct{} // may be nil
}

func (s *tellingStore) Ledger(ctx context.Context, tenant domain.TenantID, name string, partition int, wait bool) (group.LedgerRow, error) {
	row, err := s.Tables.Ledger(ctx, tenant, name, partition, wait)
	select {
	case s.looked <- struct{}{}:
	default:
	}
	return row, err
}

func (s *tellingStore) NotifyGroup(_ domain.TenantID, name string) {
	select {
	case s.told <- name:
	default:
	}
}

// Other processes are notified of what is left after the receives waiting here were served.
func TestOthersAreToldOfWhatIsLeft(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	for range 20 {
		b.append(t, "order-1")
	}
	b.put(t, "g", domain.GroupDefinition{MaxInFlight: 10})
	all := b.receive(t, "g", 10)
	s := &tellingStore{Tables: b.store, told: make(chan string, 1), looked: make(chan struct{}, 1)}
	groups := group.New(group.Config{Store: s, Log: quiet})
	waiting := make(chan []domain.Delivery)
	go func() {
		deliveries, err := groups.Receive(context.Background(), b.tenant, "g", group.Receive{Batch: 1, Wait: time.Minute})
		if err != nil {
			t.Error(err)
		}
		waiting <- deliveries
	}()
	<-s.looked
	mustOutcomes(t, domain.OutcomeDone)(groups.Ack(t.Context(), b.tenant, "g", attempts(all...)))
	mustPositions(t, <-waiting, 11)
	select {
	case <-s.told:
	case <-time.After(30 * time.Second):
		t.Fatal("no notice that there is room for more")
	}
}

// Receives in other processes may be waiting for what is given back here.
func TestOthersAreToldOfWhatIsGivenBack(t *testing.T) {
	t.Parallel()
	b := newGroupBench(t)
	b.append(t, "order-1", "order-2")
	b.put(t, "g", domain.GroupDefinition{})
	s := &tellingStore{Tables: b.store, told: make(chan string, 1)}
	groups := group.New(group.Config{Store: s, Log: quiet})
	all, err := groups.Receive(t.Context(), b.tenant, "g", group.Receive{Batch: 2})
	if err != nil {
		t.Fatal(err)
	}
	mustOutcomes(t, domain.OutcomeDone)(groups.GiveBack(t.Context(), b.tenant, "g", attempts(all[0])))
	select {
	case <-s.told:
	case <-time.After(30 * time.Second):
		t.Fatal("no notice that an event may be received again")
	}
}
