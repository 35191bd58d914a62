package subscription

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// Form numbers a way of encoding events, from 0 to Forms-1. Whoever encodes gives each of its ways a number of its own, and
// uses it for nothing else.
type Form int

// Forms is how many there can be.
const Forms = 5

// Entry is an event of a feed. Where feeds take it from the memory of their tail they share it, with what was made of it. It
// never changes, may be kept, and may be used by any number of goroutines at once.
type Entry struct {
	Event domain.Event // must not be changed

	encoded [Forms]atomic.Pointer[[]byte]
	ring    *ring // whose memory it is in, or was; nil: it is one feed's own

	mu    sync.Mutex
	bytes int  // counted by the ring
	gone  bool // from the ring

	filtering sync.Mutex // held while a filter is asked, which may take long; before mu
	parsed    *expr.Event
	verdicts  []verdict
}

// verdict is what a filter said of an entry's event.
type verdict struct {
	filter string
	holds  bool
}

// maxVerdicts is how many filters' verdicts an entry keeps: a page that many have open has one filter.
const maxVerdicts = 4

// entryBytes is what an entry takes beside its data, metadata and names, about.
const entryBytes = 400

func sizeOf(event *domain.Event) int {
	return entryBytes + len(event.Data) + len(event.Metadata) + len(event.Stream)
}

// AppendTo appends the event to b in a form. encode appends to its first argument, and must always give the same for this
// form and event: an entry that feeds share is encoded once, and what that gave is copied; one that a feed has to itself
// is encoded into b each time. Frames of many entries may so go into one buffer, and out with one write.
func (e *Entry) AppendTo(b []byte, form Form, encode func(b []byte, event *domain.Event) []byte) []byte {
	if e.ring == nil {
		return encode(b, &e.Event)
	}
	return append(b, e.Encoded(form, encode)...)
}

// Encoded returns the event in a form; encode is as in AppendTo. It is encoded once, whoever asks; nobody may change the
// bytes.
func (e *Entry) Encoded(form Form, encode func(b []byte, event *domain.Event) []byte) []byte {
	if encoded := e.encoded[form].Load(); encoded != nil {
		return *encoded
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if encoded := e.encoded[form].Load(); encoded != nil {
		return *encoded
	}
	// Most of it is data and metadata; a buffer that is too small would be made anew and again.
	encoded := encode(make([]byte, 0, sizeOf(&e.Event)), &e.Event)
	e.count(cap(encoded))
	encoded = slices.Clip(encoded)
	e.encoded[form].Store(&encoded)
	return encoded
}

// matches is selection.matches. A filter's verdict, and what it has parsed of the event, are kept for other feeds.
func (e *Entry) matches(s *selection) bool {
	if !s.names(&e.Event) {
		return false
	}
	if s.filter == nil || e.Event.Gap != nil {
		return true
	}
	if e.ring == nil {
		return holds(s.filter, expr.NewEvent(e.Event))
	}
	e.filtering.Lock()
	defer e.filtering.Unlock()
	for i := range e.verdicts {
		if e.verdicts[i].filter == s.Filter {
			return e.verdicts[i].holds
		}
	}
	parsed := e.parsed
	if parsed == nil {
		parsed = expr.NewEvent(e.Event)
		e.mu.Lock()
		if e.count(entryBytes + parsedGrowth*(len(e.Event.Data)+len(e.Event.Metadata))) {
			e.parsed = parsed
		}
		e.mu.Unlock()
	}
	holds := holds(s.filter, parsed)
	if len(e.verdicts) < maxVerdicts {
		e.verdicts = append(e.verdicts, verdict{s.Filter, holds})
	}
	return holds
}

// parsedGrowth is by how many times JSON grows when it is parsed, about.
const parsedGrowth = 4

// count adds to what the ring counts, unless the entry has left it; whoever calls it holds the lock.
func (e *Entry) count(bytes int) (counted bool) {
	if e.ring == nil || e.gone {
		return false
	}
	e.bytes += bytes
	e.ring.held.Add(int64(bytes))
	return true
}

// leave takes the entry out of what the ring counts. Feeds may have it still. It waits for no filter.
func (e *Entry) leave() {
	e.mu.Lock()
	e.gone = true
	e.ring.held.Add(-int64(e.bytes))
	e.mu.Unlock()
	if e.filtering.TryLock() {
		e.parsed = nil
		e.filtering.Unlock()
	}
}
