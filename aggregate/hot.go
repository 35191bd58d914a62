package aggregate

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// hotStates remembers the states of streams that commands were sent to, and of boundaries, so that the next command
// needs no read. A boundary's version is a position. A remembered state may be old; the append that follows from it
// fails then. It is safe for concurrent use.
//
// Tenants share the memory. When it is full, a few tenants are compared, and the largest of them loses the state that
// it has used least recently.
type hotStates struct {
	most int // bytes

	mu      sync.Mutex
	bytes   int
	tenants map[domain.TenantID]*tenantStates
}

type tenantStates struct {
	streams *simplelru.LRU[string, hotState]
	bytes   int
}

// hotState is a state after a version, folded by the definition with the tag.
type hotState struct {
	tag     string
	version int64
	last    domain.EventID // of the event at the version; zero: unknown, and of a boundary
	state   *expr.Object   // nil: the last fold gave null
	long    bool           // the state is not known, only that loadBriefly cannot load it
	since   time.Time      // of a boundary: when it was folded from its first event
}

const (
	// hotBytes is the memory of hotStates.
	hotBytes = 64 << 20
	// hotOverhead is what a state takes in addition to hotFactor times its length as JSON. Measured: objects of a few
	// numbers and short strings take 6 to 9 times their length.
	hotOverhead = 400
	hotFactor   = 10
	// maxHotState is the longest state, as JSON, that is remembered.
	maxHotState = 256 << 10
	// hotTenantsCompared is among how many tenants, of which the map's order chooses, the largest is looked for.
	hotTenantsCompared = 8
)

func newHotStates(most int) *hotStates {
	return &hotStates{most: most, tenants: make(map[domain.TenantID]*tenantStates)}
}

func (h hotState) bytes(stream string) int {
	return hotOverhead + len(stream) + hotFactor*expr.Size(value(h.state))
}

// get returns the state of a stream if it was folded by the definition with the tag.
func (h *hotStates) get(key streamKey, tag string) (hotState, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tenants[key.tenant]
	if t == nil {
		return hotState{}, false
	}
	s, ok := t.streams.Get(key.stream)
	return s, ok && s.tag == tag && !s.long
}

// isLong reports whether a stream is known to be long.
func (h *hotStates) isLong(key streamKey, tag string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tenants[key.tenant]
	if t == nil {
		return false
	}
	s, ok := t.streams.Peek(key.stream)
	return ok && s.tag == tag && s.long
}

// put remembers a state, unless a later one is known. Of a large state it remembers only that it is one.
func (h *hotStates) put(key streamKey, s hotState) {
	if expr.Size(value(s.state)) > maxHotState {
		s.state, s.long = nil, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tenants[key.tenant]
	if t == nil {
		t = &tenantStates{}
		// The number of streams is limited by their bytes.
		t.streams, _ = simplelru.NewLRU(h.most/hotOverhead, func(stream string, gone hotState) {
			t.bytes -= gone.bytes(stream)
			h.bytes -= gone.bytes(stream)
		})
		h.tenants[key.tenant] = t
	}
	if there, ok := t.streams.Peek(key.stream); ok {
		if there.tag == s.tag && there.version > s.version {
			return
		}
		t.streams.Remove(key.stream)
	}
	t.streams.Add(key.stream, s)
	t.bytes += s.bytes(key.stream)
	h.bytes += s.bytes(key.stream)
	for h.bytes > h.most {
		h.evict()
	}
}

// drop forgets a stream's state.
func (h *hotStates) drop(key streamKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.tenants[key.tenant]; t != nil {
		t.streams.Remove(key.stream)
		h.forget(key.tenant, t)
	}
}

// dropTenant forgets a tenant's states, or those of all tenants.
func (h *hotStates) dropTenant(tenant domain.TenantID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for of, t := range h.tenants {
		if of == tenant || tenant == domain.Everyone {
			t.streams.Purge()
			delete(h.tenants, of)
		}
	}
}

// The methods below require the lock.

func (h *hotStates) evict() {
	var largest *tenantStates
	var owner domain.TenantID
	compared := 0
	for tenant, t := range h.tenants {
		if largest == nil || t.bytes > largest.bytes {
			largest, owner = t, tenant
		}
		if compared++; compared == hotTenantsCompared {
			break
		}
	}
	largest.streams.RemoveOldest()
	h.forget(owner, largest)
}

// forget removes a tenant without states.
func (h *hotStates) forget(tenant domain.TenantID, t *tenantStates) {
	if t.streams.Len() == 0 {
		delete(h.tenants, tenant)
	}
}

// value is a state as a value of the language.
func value(state *expr.Object) expr.Value {
	if state == nil {
		return expr.Null{}
	}
	return state
}

// streamLocks make the commands of a stream, or of a boundary, wait for each other: if several decide at once, only one
// can append. It is safe for concurrent use.
type streamLocks struct {
	mu    sync.Mutex
	locks map[streamKey]*streamLock
}

type streamLock struct {
	held  chan struct{} // has an element while the lock is held
	users int           // that hold or await the lock
}

// lock waits for a stream's lock until done is closed; unlock is nil then.
func (l *streamLocks) lock(done <-chan struct{}, key streamKey) (unlock func()) {
	l.mu.Lock()
	if l.locks == nil {
		l.locks = make(map[streamKey]*streamLock)
	}
	one := l.locks[key]
	if one == nil {
		one = &streamLock{held: make(chan struct{}, 1)}
		l.locks[key] = one
	}
	one.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(l.locks, key)
		}
	}
	select {
	case one.held <- struct{}{}:
		return func() { <-one.held; leave() }
	case <-done:
		leave()
		return nil
	}
}
