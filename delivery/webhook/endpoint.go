package webhook

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of an endpoint's window and its circuit breaker.
const (
	firstWindow  = 4    // initial number of concurrent requests
	maxWindow    = 64   // maximum
	maxSending   = 2000 // concurrent requests of all endpoints; above it, each endpoint has one at a time
	openAfter    = 5    // consecutive failures, after which only probes are sent
	firstPause   = 5 * time.Second
	longestPause = 5 * time.Minute

	fastLatency = 50 * time.Millisecond // an endpoint that answers faster receives more events
	fastRoom    = 4                     // times its window
)

// endpoint is what this process has learned of a webhook's URL: how many concurrent requests it accepts, and whether it
// answers at all. A webhook and its replay share it. It is not stored.
type endpoint struct {
	pace *pace
	all  *atomic.Int64 // requests of all endpoints in the process

	mu       sync.Mutex
	window   int // concurrent requests, from 1 to maxWindow
	sending  int
	failures int           // consecutive
	opened   int           // how often in a row the breaker has opened; 0: closed
	probeAt  time.Time     // when an open breaker allows the next probe
	probing  bool          // a probe is running
	latency  time.Duration // average time of a response; 0: unknown
	freed    chan struct{} // one entry if a waiting caller may look again
}

// slot is the right to make one of an endpoint's concurrent requests.
type slot struct {
	endpoint *endpoint
	probe    bool // the request is an open breaker's probe
}

func newEndpoint(p *pace, all *atomic.Int64) *endpoint {
	return &endpoint{pace: p, all: all, window: firstWindow, freed: make(chan struct{}, 1)}
}

// room returns how many events an endpoint can soon be sent: its window, or a multiple of it if the endpoint is fast.
// While the breaker is open, room is 1 if a probe is due. Otherwise it is 0, and until is when the next probe is due.
func (e *endpoint) room(now time.Time) (events int, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.blocked(now):
		return 0, e.probeAt
	case e.opened > 0:
		return 1, time.Time{}
	case e.latency > 0 && e.latency < fastLatency:
		return fastRoom * e.window, time.Time{}
	}
	return e.window, time.Time{}
}

// blocked reports whether the breaker blocks all requests. e.mu must be held.
func (e *endpoint) blocked(now time.Time) bool {
	return e.opened > 0 && (e.probing || now.Before(e.probeAt))
}

// acquire waits for a slot. ok is false if ctx ends first, or if the breaker blocks all requests.
func (e *endpoint) acquire(ctx context.Context) (s slot, ok bool) {
	for ctx.Err() == nil {
		s, ok, shut := e.tryAcquire(time.Now())
		if ok || shut {
			return s, ok
		}
		select {
		case <-e.freed:
		case <-ctx.Done():
		}
	}
	return slot{}, false
}

func (e *endpoint) tryAcquire(now time.Time) (s slot, ok, shut bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.blocked(now):
		e.signal() // the other callers need not wait either
		return slot{}, false, true
	case e.opened > 0:
		e.probing = true
		s.probe = true
	case e.sending >= e.window, e.sending > 0 && e.all.Load() >= maxSending:
		return slot{}, false, false
	}
	e.sending++
	e.all.Add(1)
	if e.sending < e.window {
		e.signal()
	}
	s.endpoint = e
	return s, true, false
}

// end ends a request that says nothing about its endpoint.
func (s slot) end() {
	e := s.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leave(s)
}

// leave frees a slot. e.mu must be held.
func (e *endpoint) leave(s slot) {
	e.sending--
	e.all.Add(-1)
	if s.probe {
		e.probing = false
	}
	e.signal()
}

// accepted ends a request that the endpoint has accepted. The window grows, and an open breaker closes.
func (s slot) accepted(took time.Duration) {
	e := s.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leave(s)
	if e.opened > 0 {
		e.window = 1
	}
	e.failures, e.opened = 0, 0
	e.window = min(e.window+1, maxWindow)
	if e.latency == 0 {
		e.latency = took
	}
	e.latency += (took - e.latency) / 8
}

// failed ends a request that the endpoint has not accepted. The window shrinks. After several consecutive failures the
// breaker opens, or opens again for longer. A Retry-After of the endpoint also opens it.
func (s slot) failed(now time.Time, retryAfter time.Duration) {
	e := s.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leave(s)
	e.failures++
	e.window = max(e.window/2, 1)
	// Requests that were running when the breaker opened do not keep it open for longer.
	if !s.probe && (e.opened > 0 || e.failures < openAfter && retryAfter == 0) {
		return
	}
	pause := e.pace.firstPause
	for range e.opened {
		pause = min(2*pause, e.pace.longestPause)
	}
	e.opened++
	e.probeAt = now.Add(max(jitter(pause), min(retryAfter, e.pace.longestPause)))
}

// open reports whether the breaker is open.
func (e *endpoint) open() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.opened > 0
}

func (e *endpoint) signal() {
	select {
	case e.freed <- struct{}{}:
	default:
	}
}
