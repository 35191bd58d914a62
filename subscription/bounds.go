package subscription

import (
	"math"

	"github.com/manifold-es/manifold/domain"
)

// frontier is up to where the step looks for new events: the log's head, unless the group or the receives that may still be given
// some end before it.
func (s *step) frontier() int64 { return s.p.frontier(latestOf(s.served[s.serving:])) }

// frontier is up to where receives look for new events that have a bound; 0: they have none.
func (p *partition) frontier(upTo int64) int64 {
	frontier := min(p.group.head.Load(), p.ends())
	if upTo > 0 {
		frontier = min(frontier, upTo)
	}
	return frontier
}

// latestOf is the last position that one of some receives may be given as new; 0: there is no such bound.
func latestOf(receives []*receive) (upTo int64) {
	for _, r := range receives {
		if r.upTo == 0 {
			return 0
		}
		upTo = max(upTo, r.upTo)
	}
	return upTo
}

// ends is the last position of which the group delivers events.
func (p *partition) ends() int64 {
	if to := p.row.Group.To; to > 0 {
		return to
	}
	return math.MaxInt64
}

// tooYoung is when an event will have waited for the group's delay; 0: it has. What comes behind it in the log was not recorded
// before it, and so is no sooner.
func (p *partition) tooYoung(e *domain.Event, now int64) int64 {
	if p.row.Group.Delay == 0 {
		return 0
	}
	if due := e.RecordedAt.Add(p.row.Group.Delay).UnixMicro(); due > now {
		return due
	}
	return 0
}
