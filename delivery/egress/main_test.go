package egress_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/delivery/egress"
	"github.com/manifold-es/manifold/delivery/egress/egresstest"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// script is an in-memory broker that behaves as the test says. It keeps a broker's guarantees.
type script struct {
	mu        sync.Mutex
	stored    []egress.Message
	published int // messages received
	calls     int
	fails     func(m *egress.Message) error // nil: nothing fails
}

func (s *script) Publish(_ context.Context, messages []egress.Message) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	errs := make([]error, len(messages))
	held := make(map[string]bool)
	for i := range messages {
		m := &messages[i]
		s.published++
		switch {
		case held[m.Key]:
			errs[i] = egress.ErrHeldBack
		case s.fails != nil:
			errs[i] = s.fails(m)
		}
		if held[m.Key] = held[m.Key] || errs[i] != nil; errs[i] == nil {
			s.stored = append(s.stored, *m)
		}
	}
	return errs
}

func (s *script) Close() {}

// failing makes messages fail from now on. Nil means none.
func (s *script) failing(fails func(m *egress.Message) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = fails
}

func (s *script) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.stored)
}

func (s *script) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// places returns the streams and versions of what is stored.
func (s *script) places() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.stored {
		all = append(all, attribute(&s.stored[i], "manifoldstream")+"@"+attribute(&s.stored[i], "manifoldversion"))
	}
	return all
}

func attribute(m *egress.Message, name string) string {
	for _, a := range m.Attributes {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}

func (s *script) expect(t *testing.T, want ...string) {
	t.Helper()
	egresstest.Until(t, fmt.Sprintf("%d messages are stored", len(want)), func() bool { return s.count() >= len(want) })
	if got := s.places(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("stored are %s; want %s", got, want)
	}
}

// anything allows every byte.
var anything = egress.Alphabet{Allowed: func(byte) bool { return true }, Escape: '%', Most: 200}

// of returns the configuration of an egress named "out" for all events from the start, to a broker.
func of(s *script) egress.Config {
	return egress.Config{
		Name: "out", Start: true, Topic: "{category}", Alphabet: anything, Broker: s,
		Stay: 50 * time.Millisecond, PauseMin: 50 * time.Millisecond, PauseMax: 200 * time.Millisecond,
	}
}

func partitionOf(t *testing.T, b egresstest.Bench, tenant domain.TenantID) domain.PartitionStatus {
	t.Helper()
	status, err := b.Store.GroupStatus(t.Context(), tenant, egresstest.Group("out"))
	if err != nil {
		t.Fatal(err)
	}
	return status.Partitions[0]
}

// parked waits until a tenant has this number of dead letters.
func parked(t *testing.T, b egresstest.Bench, tenant domain.TenantID, want int) []domain.DeadLetter {
	t.Helper()
	var letters []domain.DeadLetter
	egresstest.Until(t, fmt.Sprintf("%d dead letters", want), func() bool {
		var err error
		if letters, err = b.Store.DeadLetters(t.Context(), tenant, egresstest.Group("out"), 0, 100); err != nil {
			t.Fatal(err)
		}
		return len(letters) == want
	})
	return letters
}
