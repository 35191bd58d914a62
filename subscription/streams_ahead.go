package subscription

import (
	"cmp"

	"github.com/manifold-es/manifold/domain"
)

// Bounds of what is kept of streams that are behind, for one partition of a group.
const (
	streamAheadEvents  = 16 // of one stream
	streamsAheadEvents = 4000
	streamsAheadBytes  = 4 << 20
)

// streamsAhead has the next events of streams that are behind in memory, as far as there is room: those that were passed over
// a moment ago, and those that were read behind them. What is not here is read by the stream's index.
type streamsAhead struct {
	of     map[string]*streamAhead
	events int
	bytes  int
	most   int // bytes that there may be, but for one event of each stream
}

// streamAhead is what is in memory of one stream: the group's next events of it, without a gap.
type streamAhead struct {
	events []domain.Event
	all    bool // nothing more is left behind of it
}

func (s *streamsAhead) clear() {
	*s = streamsAhead{of: make(map[string]*streamAhead), most: cmp.Or(s.most, streamsAheadBytes)}
}

// left notes that an event was left behind.
func (s *streamsAhead) left(e *domain.Event, first bool) {
	a := s.of[e.Stream]
	if a == nil {
		if !first {
			return // others before it are not here
		}
		a = &streamAhead{all: true}
		s.of[e.Stream] = a
	}
	if !a.all {
		return
	}
	if a.all = s.room(a, e); a.all {
		s.keep(a, e)
	}
}

func (s *streamsAhead) room(a *streamAhead, e *domain.Event) bool {
	return len(a.events) < streamAheadEvents && s.events < streamsAheadEvents && s.bytes+eventBytes(e) <= s.most
}

func (s *streamsAhead) keep(a *streamAhead, e *domain.Event) {
	a.events = append(a.events, apart(e))
	s.events++
	s.bytes += eventBytes(e)
}

// read takes what was read of a stream that has nothing in memory; all: nothing more of it is left behind. The first event is
// kept in any case.
func (s *streamsAhead) read(stream string, events []domain.Event, all bool) {
	a := &streamAhead{all: all}
	s.of[stream] = a
	for i := range events {
		if i > 0 && !s.room(a, &events[i]) {
			a.all = false
			return
		}
		s.keep(a, &events[i])
	}
}

// next is a stream's next event; nil where none is in memory. With all, nothing is left behind then.
func (s *streamsAhead) next(stream string) (e *domain.Event, all bool) {
	a := s.of[stream]
	if a == nil {
		return nil, false
	}
	if len(a.events) == 0 {
		return nil, a.all
	}
	return &a.events[0], a.all && len(a.events) == 1
}

// take moves on behind a stream's next event.
func (s *streamsAhead) take(stream string) {
	a := s.of[stream]
	s.events--
	s.bytes -= eventBytes(&a.events[0])
	a.events[0] = domain.Event{}
	a.events = a.events[1:]
}

// forget lets go of a stream that is no longer behind.
func (s *streamsAhead) forget(stream string) {
	a := s.of[stream]
	if a == nil {
		return
	}
	for i := range a.events {
		s.events--
		s.bytes -= eventBytes(&a.events[i])
	}
	delete(s.of, stream)
}
