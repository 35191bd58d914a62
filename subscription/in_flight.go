package subscription

import "github.com/manifold-es/manifold/domain"

// InFlight is how many of the events that this process has delivered are not settled, as far as it knows: in the partitions that
// somebody has lately used here, as each was when it was last looked at. An event counts where it was delivered last, so that the sum over
// all processes is right; what a process had delivered that is gone counts nowhere until it is delivered again.
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

// note keeps in mind what a step that was saved has delivered and settled here. It is for the running goroutine.
func (p *partition) note(s *step) {
	l := p.ledger
	for _, id := range l.ended {
		delete(p.mine, id)
	}
	l.ended = nil
	if s.fresh {
		for id, attempt := range p.mine {
			if le := l.leaseOf[id]; le == nil || le.attempt != attempt {
				delete(p.mine, id)
			}
		}
	}
	for _, r := range s.receives {
		for i := range r.deliveries {
			if p.mine == nil {
				p.mine = make(map[domain.EventID]int)
			}
			p.mine[r.deliveries[i].Event.ID] = r.deliveries[i].Attempt
		}
	}
	p.mu.Lock()
	p.inFlight = len(p.mine)
	p.mu.Unlock()
}
