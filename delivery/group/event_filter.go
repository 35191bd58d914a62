package group

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
)

// maxFilterTime limits how long one read of a group's events runs its filter, because answers wait for it. The wait for
// the first turn does not count.
const maxFilterTime = 100 * time.Millisecond

// eventFilter selects a group's events from one read. Filters take processor time, so the groups of one tenant take
// turns, as followers do. A read whose filter takes too long ends early, but after at least one event. The caller must
// call end.
type eventFilter struct {
	ahead *lookahead
	turn  selection.FilterTurn
	began time.Time // when the filter first ran; zero: not yet
}

func (a *lookahead) newFilter() eventFilter {
	return eventFilter{ahead: a, turn: selection.FilterTurn{Slot: a.filterTurn}}
}

// selects reports whether an event belongs to the partition. enough means that time is up and wanted is unknown. err is
// set if ctx ended before the turn came.
func (s *eventFilter) selects(ctx context.Context, e *domain.Event) (wanted, enough bool, err error) {
	a := s.ahead
	if !a.inPartition(e) || !a.selection.Costly && !a.selection.Names(e) {
		return false, false, nil
	}
	if !a.selection.TakesTurns() {
		return true, false, nil
	}
	if !s.began.IsZero() && time.Since(s.began) >= a.filterTime {
		return false, true, nil
	}
	if err := s.turn.Wait(ctx); err != nil {
		return false, false, err
	}
	if s.began.IsZero() {
		s.began = time.Now()
	}
	return a.selection.Matches(e), false, nil
}

func (s *eventFilter) end() { s.turn.End() }

func (a *lookahead) inPartition(e *domain.Event) bool {
	return a.partitions == 0 || partitionOf(e.Stream, a.partitions) == a.partition
}
