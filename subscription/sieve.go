package subscription

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// siftTime is for how long one read of a group's events asks its filter, waiting for the first turn left out: answers wait for it.
const siftTime = 100 * time.Millisecond

// sieve asks which of the events of one read are a group's. Filters take processor time, so groups of one tenant take turns, as
// its followers do, and a read that asks for too long ends early: but for one event at least. end must be called.
type sieve struct {
	ahead *lookahead
	turn  turn
	began time.Time // when the filter was asked first; zero: it was not
}

func (a *lookahead) sieve() sieve { return sieve{ahead: a, turn: turn{of: a.asking}} }

// wants reports whether an event is the partition's. enough is true where it was not found out any more. The error is that of
// a ctx that ended before the turn came.
func (s *sieve) wants(ctx context.Context, e *domain.Event) (wanted, enough bool, err error) {
	a := s.ahead
	if !a.named(e) {
		return false, false, nil
	}
	if a.selection.filter == nil {
		return true, false, nil
	}
	if !s.began.IsZero() && time.Since(s.began) >= a.siftFor {
		return false, true, nil
	}
	if err := s.turn.take(ctx); err != nil {
		return false, false, err
	}
	if s.began.IsZero() {
		s.began = time.Now()
	}
	return a.selection.matches(e), false, nil
}

func (s *sieve) end() { s.turn.end() }

// named reports whether an event is the partition's by its names, the filter left out.
func (a *lookahead) named(e *domain.Event) bool {
	return a.selection.names(e) && (a.partitions == 0 || partitionOf(e.Stream, a.partitions) == a.partition)
}
