package egress

import (
	"math/rand/v2"
	"sync"
	"time"
)

// probeTimeout is how long a probe may take before it is considered lost.
const probeTimeout = time.Minute

// gate is closed for all tenants while a broker does not answer. Then one tenant at a time tries, after growing pauses.
// Otherwise ten thousand tenants would read events from the database that they cannot publish.
type gate struct {
	least, most time.Duration // range of the pauses

	mu       sync.Mutex
	failures int       // consecutive
	until    time.Time // no tries before this time
	probing  time.Time // since when a try is running; zero: none
}

// enter reports whether the caller may try now and, if not, when to ask again. A caller that has entered must call
// succeeded, failed or release.
func (g *gate) enter(now time.Time) (ok bool, nextTry time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.failures == 0:
		return true, time.Time{}
	case now.Before(g.until):
		return false, g.until.Add(rand.N(g.least))
	case !g.probing.IsZero() && now.Sub(g.probing) < probeTimeout:
		return false, now.Add(g.least + rand.N(g.least))
	}
	g.probing = now
	return true, time.Time{}
}

// succeeded records that the broker has answered, and reports whether it did not answer before.
func (g *gate) succeeded() (recovered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	recovered = g.failures > 0
	g.failures, g.probing = 0, time.Time{}
	return recovered
}

// release ends the try of a caller that has learned nothing about the broker.
func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.probing = time.Time{}
}

// failed records that the broker has not answered. It reports whether the broker answered before, and when to try
// again.
func (g *gate) failed(now time.Time) (first bool, nextTry time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	first = g.failures == 0
	if first || now.After(g.until) { // several concurrent failures count as one
		g.failures++
		pause := g.least << min(g.failures-1, 10)
		g.until = now.Add(min(pause, g.most))
	}
	g.probing = time.Time{}
	return first, g.until.Add(rand.N(g.least))
}

// open reports whether the broker answered the last request.
func (g *gate) open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failures == 0
}
