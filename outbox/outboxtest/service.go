package outboxtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	"github.com/manifold-es/manifold/outbox"
)

// service accepts messages as Manifold does: all of a request or none. It stores a repeated message once, and refuses a
// mix of known and new ones. At random, it fails in every possible way.
type service struct {
	mu     sync.Mutex
	random *rand.Rand
	faults int // of a hundred requests, so many fail, and as many lose their reply
	there  map[string]bool
	log    []outbox.Row // in the order in which they were first published
	bad    map[string]int
}

func newService(random *rand.Rand, faults int) *service {
	return &service{random: random, faults: faults, there: map[string]bool{}, bad: map[string]int{}}
}

var errLost = errors.New("the connection broke")

func (s *service) publish(_ context.Context, rows []outbox.Row) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.chance() {
		return errLost
	}
	duplicates := 0
	for _, row := range rows {
		if s.bad[row.ID] > 0 {
			if len(rows) == 1 {
				s.bad[row.ID]--
			}
			return &outbox.RefusedError{Reason: "refused"}
		}
		if s.there[row.ID] {
			duplicates++
		}
	}
	switch {
	case duplicates == len(rows):
		return nil
	case duplicates > 0:
		return &outbox.RefusedError{Reason: "partial-duplicate"}
	}
	for _, row := range rows {
		s.there[row.ID] = true
		s.log = append(s.log, row)
	}
	if s.chance() {
		return errLost
	}
	return nil
}

func (s *service) chance() bool { return s.random.IntN(100) < s.faults }

// published returns how many rows were published.
func (s *service) published() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.log)
}

// streams returns the payloads of each stream, in their order.
func (s *service) streams() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	streams := map[string][]string{}
	for _, row := range s.log {
		streams[row.Stream] = append(streams[row.Stream], payloadOf(row))
	}
	return streams
}

// dying is a store whose drainer sometimes dies before it settles.
type dying struct {
	outbox.Store
	mu     sync.Mutex
	random *rand.Rand
	dies   int // percentage
}

var errDied = errors.New("the drainer died")

func (d *dying) Settle(ctx context.Context, claim outbox.Claim, outcome outbox.Outcome, keep bool) error {
	d.mu.Lock()
	died := d.random.IntN(100) < d.dies
	d.mu.Unlock()
	if died {
		return errDied
	}
	return d.Store.Settle(ctx, claim, outcome, keep)
}
