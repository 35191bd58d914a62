package projection

import (
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Progress notifies readers that wait for up-to-date documents when a build advances in this process. It also keeps
// what prevents a build from advancing. The Runner writes it and the Catalog reads it. It stores entries only while
// somebody waits or something is wrong. It is safe for concurrent use.
type Progress struct {
	onWait func(id domain.ProjectionID, tenant domain.TenantID) // called when a wait begins; nil: nothing is followed

	mu       sync.Mutex
	waiting  map[progressKey]*broadcast
	troubles map[progressKey]Outage
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
	return &Progress{waiting: make(map[progressKey]*broadcast), troubles: make(map[progressKey]Outage)}
}

// setTrouble records why a pair cannot be followed at the moment.
func (p *Progress) setTrouble(id domain.ProjectionID, tenant domain.TenantID, err error, nextTry time.Time) {
	key := progressKey{id, tenant}
	p.mu.Lock()
	defer p.mu.Unlock()
	trouble, ok := p.troubles[key]
	if !ok {
		trouble.Since = time.Now()
	}
	trouble.Error, trouble.NextTry = domain.ClientMessage(err), nextTry
	p.troubles[key] = trouble
}

// clearTrouble clears what prevented a pair from being followed.
func (p *Progress) clearTrouble(id domain.ProjectionID, tenant domain.TenantID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.troubles, progressKey{id, tenant})
}

func (p *Progress) trouble(id domain.ProjectionID, tenant domain.TenantID) (Outage, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	trouble, ok := p.troubles[progressKey{id, tenant}]
	return trouble, ok
}

// wait returns a channel that is closed when the pair advances. The caller calls done when it stops listening.
func (p *Progress) wait(id domain.ProjectionID, tenant domain.TenantID) (moved <-chan struct{}, done func()) {
	key := progressKey{id, tenant}
	p.mu.Lock()
	b := p.waiting[key]
	if b == nil {
		b = &broadcast{moved: make(chan struct{})}
		p.waiting[key] = b
	}
	b.waiters++
	p.mu.Unlock()
	if p.onWait != nil {
		p.onWait(id, tenant)
	}
	return b.moved, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if b.waiters--; b.waiters == 0 && p.waiting[key] == b {
			delete(p.waiting, key)
		}
	}
}

// awaited reports whether somebody waits for the pair.
func (p *Progress) awaited(id domain.ProjectionID, tenant domain.TenantID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting[progressKey{id, tenant}] != nil
}

// wake wakes everybody who waits for the pair.
func (p *Progress) wake(id domain.ProjectionID, tenant domain.TenantID) {
	key := progressKey{id, tenant}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.waiting[key]; b != nil {
		close(b.moved)
		delete(p.waiting, key)
	}
}
