package projection

import "github.com/manifold-es/manifold/domain"

// Await, Moved and Waiting open Progress to its test.

func (p *Progress) Await(id domain.ProjectionID, tenant domain.TenantID) {
	moved, done := p.wait(id, tenant)
	defer done()
	<-moved
}

func (p *Progress) Moved(id domain.ProjectionID, tenant domain.TenantID) { p.moved(id, tenant) }

func (p *Progress) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}
