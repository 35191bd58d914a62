package group

import (
	"time"

	"github.com/manifold-es/manifold/domain"
)

// AssignPartitions calls assignPartitions.
var AssignPartitions = assignPartitions

// AssignmentFor changes how long a process relies on what it read of a group's members.
func (g *Groups) AssignmentFor(d time.Duration) { g.assignmentFor = d }

// TopUpFor changes after how long a member's receive that has events asks for no more.
func (g *Groups) TopUpFor(d time.Duration) { g.topUpFor = d }

// Waiting returns how many receives wait in a group.
func (g *Groups) Waiting(tenant domain.TenantID, name string) int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if gr := g.byTenant[tenant][name]; gr != nil {
		return int(gr.waiting.Load())
	}
	return 0
}

// MaxWaiting is how many answers may wait in a partition.
const MaxWaiting = maxWaiting

// AnswersWaiting returns how many answers wait in a group without partitions.
func (g *Groups) AnswersWaiting(tenant domain.TenantID, name string) int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	p := g.byTenant[tenant][name].parts[0]
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.answers)
}
