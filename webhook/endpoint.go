package webhook

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// The window and the breaker of an endpoint.
const (
	firstWindow  = 4    // requests at the same time, to begin with
	maxWindow    = 64   // at most
	maxSending   = 2000 // requests of all endpoints together, beyond which each has one at a time
	openAfter    = 5    // failures in a row, behind which nothing but a probe is sent
	firstPause   = 5 * time.Second
	longestPause = 5 * time.Minute

	quick     = 50 * time.Millisecond // an endpoint that answers sooner is given more
	quickRoom = 4                     // so many times its window
)

// endpoint is what this process has learned of a webhook's URL: how many requests it takes at the same time, and whether it answers at
// all. A webhook and its replay share it. It is forgotten with the process.
type endpoint struct {
	pace *pace
	all  *atomic.Int64 // requests of all endpoints of the process

	mu       sync.Mutex
	window   int // requests at the same time, from 1 to maxWindow
	sending  int
	failures int           // in a row
	opened   int           // how often in a row the breaker has opened; 0: it is closed
	probeAt  time.Time     // when an open breaker lets the next one through
	probing  bool          // that one is under way
	latency  time.Duration // of answers, about; 0: not known
	freed    chan struct{} // has one where somebody who waits may look again
}

// slot is one of the requests that an endpoint takes at the same time.
type slot struct {
	of    *endpoint
	probe bool // the one that an open breaker has let through
}

func newEndpoint(p *pace, all *atomic.Int64) *endpoint {
	return &endpoint{pace: p, all: all, window: firstWindow, freed: make(chan struct{}, 1)}
}

// room is how many events an endpoint can be sent soon: as many as may be on their way, and of a quick one as many as it answers in
// a moment. Behind an open breaker that is one where a probe is due, and none before, until a time.
func (e *endpoint) room(now time.Time) (events int, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.shut(now):
		return 0, e.probeAt
	case e.opened > 0:
		return 1, time.Time{}
	case e.latency > 0 && e.latency < quick:
		return quickRoom * e.window, time.Time{}
	}
	return e.window, time.Time{}
}

// shut reports whether the breaker lets nothing through. e.mu must be held.
func (e *endpoint) shut(now time.Time) bool {
	return e.opened > 0 && (e.probing || now.Before(e.probeAt))
}

// acquire waits for a slot. ok is false where ctx ends before, or where the breaker lets nothing through.
func (e *endpoint) acquire(ctx context.Context) (s slot, ok bool) {
	for ctx.Err() == nil {
		s, ok, shut := e.take(time.Now())
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

func (e *endpoint) take(now time.Time) (s slot, ok, shut bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.shut(now):
		e.signal() // others who wait need not
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
	s.of = e
	return s, true, false
}

// end ends a request that says nothing of its endpoint.
func (s slot) end() {
	e := s.of
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leave(s)
}

// leave takes a slot back. e.mu must be held.
func (e *endpoint) leave(s slot) {
	e.sending--
	e.all.Add(-1)
	if s.probe {
		e.probing = false
	}
	e.signal()
}

// taken ends a request that the endpoint has taken: the window grows, and an open breaker closes.
func (s slot) taken(took time.Duration) {
	e := s.of
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

// failed ends a request that the endpoint has not taken: the window shrinks, and behind several in a row the breaker opens, or opens again
// for longer. An endpoint that asks to be left alone for a time is.
func (s slot) failed(now time.Time, retryAfter time.Duration) {
	e := s.of
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leave(s)
	e.failures++
	e.window = max(e.window/2, 1)
	// Of those that were under way when the breaker opened none has it open for longer.
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

// open reports whether the breaker is.
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
