package egress

import (
	"math/rand/v2"
	"sync"
	"time"
)

// probeFor is after how long one that tries is taken for lost.
const probeFor = time.Minute

// gate is closed while a broker does not answer, for all tenants together: then one at a time tries, after growing pauses, so
// that ten thousand do not ask the database for events that they cannot get rid of.
type gate struct {
	least, most time.Duration // of its pauses

	mu       sync.Mutex
	failures int       // in a row
	until    time.Time // nobody tries before
	probing  time.Time // since when somebody tries; zero: nobody
}

// enter reports whether the caller may try now; if not, when to ask again. Who has entered calls passed or failed.
func (g *gate) enter(now time.Time) (ok bool, again time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.failures == 0:
		return true, time.Time{}
	case now.Before(g.until):
		return false, g.until.Add(rand.N(g.least))
	case !g.probing.IsZero() && now.Sub(g.probing) < probeFor:
		return false, now.Add(g.least + rand.N(g.least))
	}
	g.probing = now
	return true, time.Time{}
}

// passed says that the broker has answered, and reports whether that is news.
func (g *gate) passed() (news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	news = g.failures > 0
	g.failures, g.probing = 0, time.Time{}
	return news
}

// left says that nothing was found out.
func (g *gate) left() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.probing = time.Time{}
}

// failed says that the broker has not answered. It reports whether it did before, and when to try again.
func (g *gate) failed(now time.Time) (first bool, again time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	first = g.failures == 0
	if first || now.After(g.until) { // several that fail at once count as one
		g.failures++
		pause := g.least << min(g.failures-1, 10)
		g.until = now.Add(min(pause, g.most))
	}
	g.probing = time.Time{}
	return first, g.until.Add(rand.N(g.least))
}

// open reports whether the broker has answered when it was asked last.
func (g *gate) open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failures == 0
}
