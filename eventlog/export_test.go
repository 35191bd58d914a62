package eventlog

import "github.com/manifold-es/manifold/domain"

// Waiting returns how many requests stand in the tenant's queue: those that no batch has taken yet.
func (s *Log) Waiting(tenant domain.TenantID) int {
	s.writers.mu.RLock()
	w := s.writers.of[tenant]
	s.writers.mu.RUnlock()
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue)
}

// Confirm lets readers know of a head when the database shows it.
func (s *Log) Confirm(head domain.Head) { s.confirm(head) }
