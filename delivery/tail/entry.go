package tail

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// Form identifies an encoding of events, from 0 to Forms-1. A caller that encodes events assigns a distinct Form to
// each encoding.
type Form int

// Forms is the number of Form values.
const Forms = 5

// Entry is an event of a feed. Feeds that take it from their tail's memory share it together with what was derived from
// it. An Entry never changes, may be kept, and may be used by any number of goroutines at once.
type Entry struct {
	Event domain.Event // must not be changed

	encoded [Forms]atomic.Pointer[[]byte]
	ring    *ring // that holds or held it; nil: only one feed has it

	mu    sync.Mutex
	bytes int  // counted by the ring
	gone  bool // removed from the ring

	filtering sync.Mutex // held while a filter runs, which may take long; locked before mu
	parsed    *expr.Event
	verdicts  []verdict
}

// verdict is the result of a filter for an entry's event.
type verdict struct {
	filter string
	holds  bool
}

// maxVerdicts limits how many filter results an entry keeps. All viewers of one page share a filter.
const maxVerdicts = 4

// entryBytes approximates the size of an entry without its data, metadata, tags and names.
const entryBytes = 400

func sizeOf(event *domain.Event) int {
	return entryBytes + event.Bytes() + len(event.Stream)
}

// AppendTo appends the event to b in a form. encode appends to its first argument, and must always produce the same
// bytes for this form and event. A shared entry is encoded once, and the result is copied. An entry of a single feed is
// encoded into b each time. So frames of many entries can share one buffer and one write.
func (e *Entry) AppendTo(b []byte, form Form, encode func(b []byte, event *domain.Event) []byte) []byte {
	if e.ring == nil {
		return encode(b, &e.Event)
	}
	return append(b, e.Encoded(form, encode)...)
}

// Encoded returns the event in a form, encoded once for all callers. For encode, see AppendTo. Callers must not change
// the returned bytes.
func (e *Entry) Encoded(form Form, encode func(b []byte, event *domain.Event) []byte) []byte {
	if encoded := e.encoded[form].Load(); encoded != nil {
		return *encoded
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if encoded := e.encoded[form].Load(); encoded != nil {
		return *encoded
	}
	// Most of it is data and metadata. A buffer that is too small would be reallocated repeatedly.
	encoded := encode(make([]byte, 0, sizeOf(&e.Event)), &e.Event)
	e.count(cap(encoded))
	encoded = slices.Clip(encoded)
	e.encoded[form].Store(&encoded)
	return encoded
}

// matches is selection.Selection.Matches, but keeps the filter's result and the parsed event for other feeds.
func (e *Entry) matches(s *selection.Selection) bool {
	if !s.Names(&e.Event) {
		return false
	}
	if s.Condition == nil || e.Event.Gap != nil {
		return true
	}
	if e.ring == nil {
		return selection.Holds(s.Condition, expr.NewEvent(&e.Event))
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
		parsed = expr.NewEvent(&e.Event)
		e.mu.Lock()
		if e.count(entryBytes + parsedGrowth*(len(e.Event.Data)+len(e.Event.Metadata))) {
			e.parsed = parsed
		}
		e.mu.Unlock()
	}
	holds := selection.Holds(s.Condition, parsed)
	if len(e.verdicts) < maxVerdicts {
		e.verdicts = append(e.verdicts, verdict{s.Filter, holds})
	}
	return holds
}

// parsedGrowth approximates by how many times JSON grows when it is parsed.
const parsedGrowth = 4

// count adds to the bytes that the ring counts, unless the entry has left the ring. The caller must hold e.mu.
func (e *Entry) count(bytes int) (counted bool) {
	if e.ring == nil || e.gone {
		return false
	}
	e.bytes += bytes
	e.ring.held.Add(int64(bytes))
	return true
}

// leave subtracts the entry from the bytes that the ring counts. Feeds may still hold the entry. leave does not wait
// for a running filter.
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
