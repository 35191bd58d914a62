package eventlog

import (
	"time"

	"github.com/manifold-es/manifold/domain"
)

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

// SetPreparedFor changes how long a log of a cluster may have an older head. It must be called before Listen sees one.
func (s *Log) SetPreparedFor(d time.Duration) { s.preparedFor = d }
