package projection

import (
	"sync"

	"github.com/manifold-es/manifold/domain"
)

// Progress tells those who wait for a document to be up to date that a build has moved on in this process. The Runner
// writes it and the Catalog reads it; it keeps something only while somebody waits. It is safe for concurrent use.
type Progress struct {
	mu      sync.Mutex
	waiting map[progressKey]*broadcast
}

type progressKey struct {
	id     domain.ProjectionID
	tenant domain.TenantID
}

type broadcast struct {
	moved   chan struct{} // closed at the next move, and replaced
	waiters int
}

// NewProgress returns a Progress, which one Runner and one Catalog share.
func NewProgress() *Progress {
	return &Progress{waiting: make(map[progressKey]*broadcast)}
}

// wait returns a channel that is closed when the pair moves; done must be called when nobody listens to it any more.
func (p *Progress) wait(id domain.ProjectionID, tenant domain.TenantID) (moved <-chan struct{}, done func()) {
	key := progressKey{id, tenant}
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.waiting[key]
	if b == nil {
		b = &broadcast{moved: make(chan struct{})}
		p.waiting[key] = b
	}
	b.waiters++
	return b.moved, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if b.waiters--; b.waiters == 0 && p.waiting[key] == b {
			delete(p.waiting, key)
		}
	}
}

// moved wakes everybody who waits for the pair.
func (p *Progress) moved(id domain.ProjectionID, tenant domain.TenantID) {
	key := progressKey{id, tenant}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.waiting[key]; b != nil {
		close(b.moved)
		delete(p.waiting, key)
	}
}
