package group

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
)

// siftTime limits how long one read of a group's events runs its filter, because answers wait for it. The wait for the
// first turn does not count.
const siftTime = 100 * time.Millisecond

// sieve selects a group's events from one read. Filters take processor time, so the groups of one tenant take turns, as
// followers do. A read whose filter takes too long ends early, but after at least one event. The caller must call end.
type sieve struct {
	ahead *lookahead
	turn  selection.Turn
	began time.Time // when the filter first ran; zero: not yet
}

func (a *lookahead) sieve() sieve { return sieve{ahead: a, turn: selection.Turn{Of: a.asking}} }

// wants reports whether an event belongs to the partition. enough means that time is up and wanted is unknown. err is
// set if ctx ended before the turn came.
func (s *sieve) wants(ctx context.Context, e *domain.Event) (wanted, enough bool, err error) {
	a := s.ahead
	if !a.named(e) {
		return false, false, nil
	}
	if a.selection.Condition == nil {
		return true, false, nil
	}
	if !s.began.IsZero() && time.Since(s.began) >= a.siftFor {
		return false, true, nil
	}
	if err := s.turn.Take(ctx); err != nil {
		return false, false, err
	}
	if s.began.IsZero() {
		s.began = time.Now()
	}
	return a.selection.Matches(e), false, nil
}

func (s *sieve) end() { s.turn.End() }

// named reports whether an event belongs to the partition by its names. It ignores the filter.
func (a *lookahead) named(e *domain.Event) bool {
	return a.selection.Names(e) && (a.partitions == 0 || partitionOf(e.Stream, a.partitions) == a.partition)
}
