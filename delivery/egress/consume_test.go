package egress_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/manifold-es/manifold/delivery/egress"
	"github.com/manifold-es/manifold/delivery/egress/egresstest"
	"github.com/manifold-es/manifold/domain"
)

var errTrouble = errors.New("trouble")

func TestEventsAreMessages(t *testing.T) {
	t.Parallel()
	b := egresstest.NewBench(t, 1)
	tenant := b.Tenants[0]
	b.Append(t, tenant, "order-1", "other-1", "order-2", "order-1")
	s := &script{}
	config := of(s)
	config.Selection = domain.Selection{Categories: []string{"order"}, Filter: "event.data.total > 5"}
	config.Topic = "{tenant}/{category}/{key}/{type}"
	config.DataSchema = func(event *domain.Event) string { return "schema:" + event.Type }
	b.Start(t, config)
	b.AppendData(t, tenant, `{"total": 3}`, "order-3")
	b.AppendData(t, tenant, `{"total": 6}`, "order-3")
	s.expect(t, "order-1@1", "order-2@1", "order-1@2", "order-3@2")
	first := s.stored[0]
	id := attribute(&first, "id")
	if want := "out/" + tenant.String() + "/" + id; first.ID != want {
		t.Errorf("its id is %q; want %q", first.ID, want)
	}
	if want := tenant.String() + "/order/1/OrderPlaced"; first.Topic != want {
		t.Errorf("its topic is %q; want %q", first.Topic, want)
	}
	if first.Key != tenant.String()+"/order-1" || first.ContentType != "application/json" || string(first.Data) != `{"total": 7}` {
		t.Errorf("it is %+v, with the data %s", first, first.Data)
	}
	for name, want := range map[string]string{"specversion": "1.0", "type": "OrderPlaced", "subject": "1", "source": "/categories/order", "dataschema": "schema:OrderPlaced", "manifoldtenant": tenant.String()} {
		if got := attribute(&first, name); got != want {
			t.Errorf("its %s is %q; want %q", name, got, want)
		}
	}
	egresstest.Until(t, "everything is settled", func() bool {
		p := partitionOf(t, b, tenant)
		return p.Checkpoint == 6 && p.Oldest == 0
	})
}

func TestRefusedEventIsADeadLetter(t *testing.T) {
	t.Parallel()
	b := egresstest.NewBench(t, 1)
	tenant := b.Tenants[0]
	s := &script{}
	s.failing(func(m *egress.Message) error {
		if attribute(m, "manifoldversion") == "2" {
			return fmt.Errorf("%w: too large. %s", egress.ErrRefused, strings.Repeat("x", 2*domain.MaxReasonBytes))
		}
		return nil
	})
	b.Append(t, tenant, "order-1", "order-1", "order-1", "order-2", "order-2", "order-1")
	p := b.Start(t, of(s))
	egresstest.Until(t, "the others are stored", func() bool { return s.count() == 4 })
	letters := parked(t, b, tenant, 2)
	if letters[0].Position != 2 || letters[1].Position != 5 || !strings.Contains(letters[0].Reason, "too large") {
		t.Errorf("the dead letters are %+v", letters)
	}
	egresstest.Until(t, "everything is settled", func() bool { return partitionOf(t, b, tenant).Checkpoint == 6 })
	if !p.Egress.State().Up {
		t.Error("a message that is refused is taken for a broker that does not answer")
	}
	// When the broker accepts more, the dead letters are replayed.
	s.failing(nil)
	if _, err := p.Groups.Replay(t.Context(), tenant, egresstest.Group("out"), domain.EventID{}); err != nil {
		t.Fatal(err)
	}
	egresstest.Until(t, "the replays are stored", func() bool { return s.count() == 6 })
	parked(t, b, tenant, 0)
}

// A failed replay becomes a dead letter again, because seeking back to it would repeat everything since.
func TestFailedReplayIsADeadLetterAgain(t *testing.T) {
	t.Parallel()
	b := egresstest.NewBench(t, 1)
	tenant := b.Tenants[0]
	s := &script{}
	s.failing(func(m *egress.Message) error {
		if attribute(m, "manifoldposition") == "1" {
			return egress.ErrRefused
		}
		return nil
	})
	b.Append(t, tenant, "order-1", "order-2", "order-3")
	p := b.Start(t, of(s))
	s.expect(t, "order-2@1", "order-3@1")
	parked(t, b, tenant, 1)
	s.failing(func(m *egress.Message) error {
		if attribute(m, "manifoldposition") == "1" {
			return errTrouble
		}
		return nil
	})
	if _, err := p.Groups.Replay(t.Context(), tenant, egresstest.Group("out"), domain.EventID{}); err != nil {
		t.Fatal(err)
	}
	egresstest.Until(t, "it comes back", func() bool {
		letters, err := b.Store.DeadLetters(t.Context(), tenant, egresstest.Group("out"), 0, 10)
		return err == nil && len(letters) == 1 && letters[0].Reason == errTrouble.Error() && letters[0].Replays == 1
	})
	b.Append(t, tenant, "order-4")
	s.expect(t, "order-2@1", "order-3@1", "order-4@1")
}

func TestFailureSeeksToTheFirstMissingEvent(t *testing.T) {
	t.Parallel()
	b := egresstest.NewBench(t, 2)
	s := &script{}
	bad := b.Tenants[0].String()
	s.failing(func(m *egress.Message) error {
		if attribute(m, "manifoldtenant") == bad && attribute(m, "manifoldstream") == "order-1" && attribute(m, "manifoldversion") == "2" {
			return fmt.Errorf("%w with %q", errTrouble, m.Topic)
		}
		return nil
	})
	config := of(s)
	config.Topic = "m.{key}"
	p := b.Start(t, config)
	b.Append(t, b.Tenants[0], "order-1", "order-1", "order-1", "order-2")
	egresstest.Until(t, "it was tried several times", func() bool { return s.asked() > 4 && p.Egress.State().Failing == 1 })
	state := p.Egress.State()
	if !state.Up || state.WaitingSince.IsZero() || state.Error != `trouble with "m.{key}"` || state.ErrorTenant != bad {
		t.Errorf("the state is %+v", state)
	}
	if q := partitionOf(t, b, b.Tenants[0]); q.Checkpoint != 1 {
		t.Errorf("the checkpoint is %d", q.Checkpoint)
	}
	// Another tenant is not delayed.
	before := s.count()
	b.Append(t, b.Tenants[1], "order-9")
	egresstest.Until(t, "the other's is stored", func() bool { return strings.Contains(fmt.Sprint(s.places()[before:]), "order-9@1") })
	s.failing(nil)
	egresstest.Until(t, "everything is settled", func() bool { return partitionOf(t, b, b.Tenants[0]).Checkpoint == 4 })
	seen, last := make(map[string]bool), ""
	for _, place := range s.places() {
		if strings.HasPrefix(place, "order-1@") && !seen[place] {
			if place < last {
				t.Errorf("%s came behind %s", place, last)
			}
			last = place
		}
		seen[place] = true
	}
	if len(seen) != 5 {
		t.Errorf("stored are %s", s.places())
	}
	egresstest.Until(t, "nothing waits", func() bool { return p.Egress.State().WaitingSince.IsZero() })
}

// While the broker is down, one tenant at a time tries, after growing pauses. The events wait in the log.
func TestUnreachableBrokerIsTriedSeldom(t *testing.T) {
	t.Parallel()
	const tenants = 12
	b := egresstest.NewBench(t, tenants)
	s := &script{}
	s.failing(func(*egress.Message) error { return fmt.Errorf("%w: no route", egress.ErrUnreachable) })
	p := b.Start(t, of(s))
	for _, tenant := range b.Tenants {
		b.Append(t, tenant, "order-1", "order-1")
	}
	egresstest.Until(t, "it is known to be down", func() bool { return !p.Egress.State().Up })
	if state := p.Egress.State(); !strings.Contains(state.Error, "no route") || state.ErrorSince.IsZero() || state.Failing != 0 {
		t.Errorf("the state of a broker that does not answer is %+v", state)
	}
	egresstest.Until(t, "it was tried again", func() bool { return s.asked() >= tenants+5 })
	before := s.asked()
	for range 50 { // a second with pauses of 200 ms
		egresstest.Pause(t)
	}
	if tries := s.asked() - before; tries > 20 {
		t.Errorf("it was asked %d times in about a second", tries)
	}
	s.failing(nil)
	egresstest.Until(t, "all are stored", func() bool { return s.count() >= 2*tenants })
	if s.count() != 2*tenants {
		t.Errorf("%d messages are stored", s.count())
	}
	egresstest.Until(t, "it is known to be up", func() bool { return p.Egress.State() == domain.EgressState{Up: true} })
}

// Two processes working for the same tenants take turns: one does not publish while the other does.
func TestOneHolderAtATime(t *testing.T) {
	t.Parallel()
	b := egresstest.NewBench(t, 1)
	s := &script{}
	for range 2 {
		b.Start(t, of(s))
	}
	for n := range 40 {
		b.Append(t, b.Tenants[0], "order-1", fmt.Sprintf("order-%d", n+2))
		if n%8 == 0 {
			egresstest.Pause(t)
		}
	}
	egresstest.Until(t, "everything is settled", func() bool { return partitionOf(t, b, b.Tenants[0]).Checkpoint == 80 })
	if s.count() != 80 {
		t.Errorf("%d messages are stored, of 80", s.count())
	}
}

// A waiting event no longer counts for this process when another process has taken the tenant over, or the tenant is
// gone.
func TestLagEndsWithTheTenant(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(t *testing.T, b egresstest.Bench, p *egresstest.Process, ours, active *atomic.Bool){
		"to another process": func(_ *testing.T, _ egresstest.Bench, p *egresstest.Process, ours, _ *atomic.Bool) {
			ours.Store(false)
			p.Dispatcher.Rebalance()
		},
		"for good": func(t *testing.T, b egresstest.Bench, p *egresstest.Process, _, active *atomic.Bool) {
			active.Store(false)
			if err := p.Groups.Delete(t.Context(), b.Tenants[0], egresstest.Group("out")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		check := func(t *testing.T, failure error, failing int) {
			t.Parallel()
			b := egresstest.NewBench(t, 1)
			b.Append(t, b.Tenants[0], "order-1")
			s := &script{}
			s.failing(func(*egress.Message) error { return failure })
			config := of(s)
			var ours, active atomic.Bool
			ours.Store(true)
			active.Store(true)
			config.Owns = func(domain.TenantID) bool { return ours.Load() }
			config.Active = func(context.Context, domain.TenantID) (bool, error) { return active.Load(), nil }
			p := b.Start(t, config)
			egresstest.Until(t, "it waits", func() bool {
				state := p.Egress.State()
				return !state.WaitingSince.IsZero() && state.Up == (failing > 0) && state.Failing == failing && strings.Contains(state.Error, failure.Error()) && !state.ErrorSince.IsZero()
			})
			leave(t, b, p, &ours, &active)
			egresstest.Until(t, "it waits no more", func() bool { return p.Egress.State() == domain.EgressState{Up: true} })
		}
		t.Run(name, func(t *testing.T) { check(t, errors.New("no such topic"), 1) })
		t.Run(name+" during an outage", func(t *testing.T) { check(t, egress.ErrUnreachable, 0) })
	}
}
