package tail

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
)

// ring holds the newest range of a log in memory: all events above floor, up to head. It is bounded in bytes and drops
// the oldest events first. One goroutine appends, and any number may take.
type ring struct {
	bound *atomic.Int64 // bytes
	held  atomic.Int64  // bytes of entries, with what was derived from them

	mu      sync.RWMutex
	entries []*Entry // by position
	floor   int64
	head    int64
	looked  int64               // events were looked for up to here; if the last events were removed, this is beyond head
	missing []selection.Missing // ranges ending above floor whose events were gone before the ring read them
	news    chan struct{}       // closed when head or looked moves
}

func newRing(bound *atomic.Int64) *ring { return &ring{bound: bound, news: make(chan struct{})} }

// begin sets the position after which the ring begins.
func (r *ring) begin(floor int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.floor, r.head, r.looked = floor, floor, floor
}

// place returns the range of the ring: above floor, up to head.
func (r *ring) place() (floor, head int64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.floor, r.head
}

// append adds all events of the log after the ring's head up to looked, with the ranges that are missing there. It
// wakes waiting feeds.
func (r *ring) append(events []domain.Event, looked int64, gone ...selection.Missing) {
	entries := make([]Entry, len(events)) // one block, because they leave at nearly the same time
	bytes := 0
	for i := range entries {
		e := &entries[i]
		e.Event, e.ring, e.bytes = events[i], r, sizeOf(&events[i])
		bytes += e.bytes
	}
	r.held.Add(int64(bytes))
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range entries {
		r.entries = append(r.entries, &entries[i])
		r.head = entries[i].Event.Position
	}
	if len(gone) > 0 {
		r.missing = selection.MergeMissing(r.missing, gone)
	}
	if len(events) == 0 && looked <= r.looked {
		return
	}
	r.looked = max(r.looked, looked)
	r.trim()
	close(r.news)
	r.news = make(chan struct{})
}

// shrink applies a bound that has been lowered.
func (r *ring) shrink() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trim()
}

// trim removes the oldest entries until the ring is within its bound. It always keeps the newest entry.
func (r *ring) trim() {
	gone := 0
	for gone < len(r.entries)-1 && r.held.Load() > r.bound.Load() {
		r.floor = r.entries[gone].Event.Position
		r.entries[gone].leave()
		r.entries[gone] = nil // the array stays for a while
		gone++
	}
	r.entries = r.entries[gone:]
	if gone > 0 && len(r.missing) > 0 {
		r.missing = r.missingAboveFloor()
	}
}

// forget removes all entries, so that feeds that still need them read the log.
func (r *ring) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		e.leave()
	}
	r.entries, r.floor = nil, r.head
	r.missing = r.missingAboveFloor()
}

func (r *ring) missingAboveFloor() []selection.Missing {
	return slices.DeleteFunc(slices.Clone(r.missing), func(m selection.Missing) bool { return m.To <= r.floor })
}

// ringSlice is what a ring has after a position.
type ringSlice struct {
	missed  bool // the ring no longer has all of it; nothing else is set
	entries []*Entry
	upTo    int64               // all events up to here are in entries, or there are none
	atHead  bool                // upTo is the last known position of the log, and at least the goal
	missing []selection.Missing // in the ring's range
	news    <-chan struct{}     // closed when there is more; nil: there is more already
}

// after appends the entries after a position to list. It adds no more than most entries and about the given number of
// bytes, but at least one entry if there is one.
func (r *ring) after(position, goal int64, list []*Entry, most, bytes int) ringSlice {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if position < r.floor {
		return ringSlice{missed: true}
	}
	if position >= r.head {
		return ringSlice{entries: list, upTo: position, atHead: r.reached(position, goal), news: r.news, missing: r.missing}
	}
	later := r.entries[sort.Search(len(r.entries), func(i int) bool { return r.entries[i].Event.Position > position }):]
	n := 0
	for n < len(later) && n < most && (n == 0 || bytes > 0) {
		bytes -= sizeOf(&later[n].Event)
		n++
	}
	t := ringSlice{entries: append(list, later[:n]...), upTo: r.head, missing: r.missing}
	if n < len(later) {
		t.upTo = later[n-1].Event.Position
	} else {
		t.news = r.news
	}
	t.atHead = r.reached(t.upTo, goal)
	return t
}

// atHead reports whether a position is the last known one of the log, and the log was read up to the goal.
func (r *ring) atHead(position, goal int64) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.reached(position, goal)
}

func (r *ring) reached(position, goal int64) bool { return position >= r.head && r.looked >= goal }
