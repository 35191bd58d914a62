package subscription

import "time"

// Sweep looks after what has timed out, as Run does, at a time of the test's choosing.
func (g *Groups) Sweep(now time.Time) { g.sweep(now) }

// InUse is how many partitions of groups are in memory, and how many bytes of events they have there.
func (g *Groups) InUse() (partitions int, bytes int64) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, groups := range g.byTenant {
		for _, gr := range groups {
			partitions += len(gr.parts)
		}
	}
	return partitions, g.held.Load()
}
