package subscription

import (
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/manifold-es/manifold/domain"
)

// ring is the newest stretch of a log, in memory: all events behind floor, up to head. It is bounded in bytes; the oldest
// events go first. One goroutine appends, any number may take.
type ring struct {
	bound *atomic.Int64 // bytes
	held  atomic.Int64  // bytes of entries, with what was made of them

	mu      sync.RWMutex
	entries []*Entry // by position
	floor   int64
	head    int64
	looked  int64         // up to here was looked for events: a log ends before its head where the last ones were removed
	missing []missing     // that ends behind floor: what was gone already when the ring was given what follows
	news    chan struct{} // closed when head or looked move
}

func newRing(bound *atomic.Int64) *ring { return &ring{bound: bound, news: make(chan struct{})} }

// begin says behind which position the ring begins.
func (r *ring) begin(floor int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.floor, r.head, r.looked = floor, floor, floor
}

// place returns the stretch that the ring has: behind floor, up to head.
func (r *ring) place() (floor, head int64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.floor, r.head
}

// append adds all that the log has behind the ring's head up to looked, with what is missing there, and wakes who waits for it.
func (r *ring) append(events []domain.Event, looked int64, gone ...missing) {
	entries := make([]Entry, len(events)) // one block: they go together, nearly
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
		r.missing = mergeMissing(r.missing, gone)
	}
	if len(events) == 0 && looked <= r.looked {
		return
	}
	r.looked = max(r.looked, looked)
	r.trim()
	close(r.news)
	r.news = make(chan struct{})
}

// shrink is for a bound that has become lower.
func (r *ring) shrink() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trim()
}

// trim removes the oldest entries until what is held is within the bound. The newest one stays, however large it is.
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
		r.missing = slices.DeleteFunc(slices.Clone(r.missing), func(m missing) bool { return m.to <= r.floor })
	}
}

// taking is what a ring has behind a position.
type taking struct {
	missed  bool // it has forgotten some of that; nothing else is set then
	entries []*Entry
	upTo    int64           // all up to here are in entries, or there are none
	atHead  bool            // upTo is as far as the log is known, and that is the goal at least
	missing []missing       // in what the ring has
	news    <-chan struct{} // not nil where that is all there is: closed when there is more
}

// take appends what follows a position to a list: no more than most, or than some bytes, but for the first.
func (r *ring) take(after, goal int64, list []*Entry, most, bytes int) taking {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if after < r.floor {
		return taking{missed: true}
	}
	if after >= r.head {
		return taking{entries: list, upTo: after, atHead: r.reached(after, goal), news: r.news, missing: r.missing}
	}
	behind := r.entries[sort.Search(len(r.entries), func(i int) bool { return r.entries[i].Event.Position > after }):]
	n := 0
	for n < len(behind) && n < most && (n == 0 || bytes > 0) {
		bytes -= sizeOf(&behind[n].Event)
		n++
	}
	t := taking{entries: append(list, behind[:n]...), upTo: r.head, missing: r.missing}
	if n < len(behind) {
		t.upTo = behind[n-1].Event.Position
	} else {
		t.news = r.news
	}
	t.atHead = r.reached(t.upTo, goal)
	return t
}

// atHead reports whether a position is as far as the log is known, and that is a goal at least.
func (r *ring) atHead(position, goal int64) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.reached(position, goal)
}

func (r *ring) reached(position, goal int64) bool { return position >= r.head && r.looked >= goal }
