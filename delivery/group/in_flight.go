package group

import "github.com/manifold-es/manifold/domain"

// InFlight returns how many of the events that this process delivered are not settled, as far as it knows. It counts
// the partitions that were used here lately, each as of its last step. An event counts in the process that delivered it
// last, so the sum over all processes is right. Deliveries of a process that has ended count nowhere until they are
// redelivered.
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

// recordInFlight records what a saved step has delivered and settled here. Only the running goroutine calls it.
func (p *partition) recordInFlight(s *step) {
	l := p.ledger
	for _, id := range l.endedEvents {
		delete(p.deliveredHere, id)
	}
	l.endedEvents = nil
	if s.ledgerRead {
		for id, attempt := range p.deliveredHere {
			if le := l.leaseOf[id]; le == nil || le.attempt != attempt {
				delete(p.deliveredHere, id)
			}
		}
	}
	for _, r := range s.receives {
		for i := range r.deliveries {
			if p.deliveredHere == nil {
				p.deliveredHere = make(map[domain.EventID]int)
			}
			p.deliveredHere[r.deliveries[i].Event.ID] = r.deliveries[i].Attempt
		}
	}
	p.mu.Lock()
	p.inFlight = len(p.deliveredHere)
	p.mu.Unlock()
}
