package group

import "time"

// Sweep handles timeouts as Run does, when the test wants it.
func (g *Groups) Sweep(now time.Time) { g.sweep(now) }

// InUse returns how many partitions of groups are in memory, and the bytes of their events.
func (g *Groups) InUse() (partitions int, bytes int64) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, groups := range g.byTenant {
		for _, gr := range groups {
			partitions += len(gr.parts)
		}
	}
	return partitions, g.memory.used.Load()
}
