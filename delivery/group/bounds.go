package group

import (
	"math"

	"github.com/manifold-es/manifold/domain"
)

// frontier returns the position up to which the step looks for new events. This is the log's head, unless the group, or
// the receives that may still be served, end before it.
func (s *step) frontier() int64 { return s.p.frontier(latestOf(s.served[s.nextServed:])) }

// frontier returns the position up to which receives with the bound upTo look for new events. 0 means no bound.
func (p *partition) frontier(upTo int64) int64 {
	frontier := min(p.group.head.Load(), p.ends())
	if upTo > 0 {
		frontier = min(frontier, upTo)
	}
	return frontier
}

// latestOf returns the last position that any of the receives may be given as new. 0 means there is no such bound.
func latestOf(receives []*receive) (upTo int64) {
	for _, r := range receives {
		if r.upTo == 0 {
			return 0
		}
		upTo = max(upTo, r.upTo)
	}
	return upTo
}

// ends returns the last position whose event the group delivers.
func (p *partition) ends() int64 {
	if to := p.row.Group.To; to > 0 {
		return to
	}
	return math.MaxInt64
}

// endOfDelay returns when an event will have waited for the group's delay, or 0 if it has. Later events in the log were
// not recorded earlier, so they are not due earlier.
func (p *partition) endOfDelay(e *domain.Event, now int64) int64 {
	if p.row.Group.Delay == 0 {
		return 0
	}
	if due := e.RecordedAt.Add(p.row.Group.Delay).UnixMicro(); due > now {
		return due
	}
	return 0
}
