package group

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

// streamsAhead holds the next events of streams that are behind, as far as there is room. They were left behind a
// moment ago, or were read later. Other events are read by the stream's index.
type streamsAhead struct {
	of       map[string]*streamAhead
	events   int
	bytes    int
	maxBytes int // limit of bytes; one event of each stream may exceed it
}

// streamAhead holds the group's next events of one stream, without gaps.
type streamAhead struct {
	events []domain.Event
	all    bool // the stream has no more events left behind
}

func (s *streamsAhead) clear() {
	*s = streamsAhead{of: make(map[string]*streamAhead), maxBytes: cmp.Or(s.maxBytes, streamsAheadBytes)}
}

// addLeftBehind records that an event was left behind.
func (s *streamsAhead) addLeftBehind(e *domain.Event, first bool) {
	a := s.of[e.Stream]
	if a == nil {
		if !first {
			return // earlier ones are not in memory
		}
		a = &streamAhead{all: true}
		s.of[e.Stream] = a
	}
	if !a.all {
		return
	}
	if a.all = s.room(a, e); a.all {
		s.add(a, e)
	}
}

func (s *streamsAhead) room(a *streamAhead, e *domain.Event) bool {
	return len(a.events) < streamAheadEvents && s.events < streamsAheadEvents && s.bytes+eventBytes(e) <= s.maxBytes
}

func (s *streamsAhead) add(a *streamAhead, e *domain.Event) {
	a.events = append(a.events, cloneEvent(e))
	s.events++
	s.bytes += eventBytes(e)
}

// addRead stores the events that were read of a stream without events in memory. all means that nothing more is left
// behind. The first event is always kept.
func (s *streamsAhead) addRead(stream string, events []domain.Event, all bool) {
	a := &streamAhead{all: all}
	s.of[stream] = a
	for i := range events {
		if i > 0 && !s.room(a, &events[i]) {
			a.all = false
			return
		}
		s.add(a, &events[i])
	}
}

// next returns a stream's next event, or nil if none is in memory. all means that nothing is left behind after it.
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

// advance moves on to the event after a stream's next one.
func (s *streamsAhead) advance(stream string) {
	a := s.of[stream]
	s.events--
	s.bytes -= eventBytes(&a.events[0])
	a.events[0] = domain.Event{}
	a.events = a.events[1:]
}

// remove drops a stream that is no longer behind.
func (s *streamsAhead) remove(stream string) {
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
