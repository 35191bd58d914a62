package subscription

// InFlight is how many events are delivered and not settled, in the partitions that somebody has lately used in this process, as
// each was when it was last looked at: also those that another process has delivered.
func (g *Groups) InFlight() int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	n := 0
	for _, groups := range g.byTenant {
		for _, gr := range groups {
			for _, p := range gr.parts {
				p.mu.Lock()
				n += p.inFlight
				p.mu.Unlock()
			}
		}
	}
	return n
}
