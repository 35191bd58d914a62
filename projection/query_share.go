package projection

import (
	"context"
	"sync"

	"github.com/manifold-es/manifold/domain"
)

// queriesAtOnce is how many queries of one tenant, of those whose cost is not known beforehand, are at databases at the
// same time: fewer than a driver has connections for them, so that one tenant's cannot hold up all others'.
const queriesAtOnce = 3

// queryShare lets each tenant have its share of queries under way. The zero value is ready; it may be used by any number of
// goroutines.
type queryShare struct {
	mu      sync.Mutex
	tenants map[domain.TenantID]*tenantQueries // of those that have any under way
}

type tenantQueries struct {
	places chan struct{}
	users  int // under way and waiting
}

// enter waits until the tenant has a place, or ctx ends. leave gives it back.
func (s *queryShare) enter(ctx context.Context, tenant domain.TenantID) (leave func(), err error) {
	s.mu.Lock()
	queries := s.tenants[tenant]
	if queries == nil {
		if s.tenants == nil {
			s.tenants = make(map[domain.TenantID]*tenantQueries)
		}
		queries = &tenantQueries{places: make(chan struct{}, queriesAtOnce)}
		s.tenants[tenant] = queries
	}
	queries.users++
	s.mu.Unlock()
	select {
	case queries.places <- struct{}{}:
		return func() {
			<-queries.places
			s.left(tenant, queries)
		}, nil
	case <-ctx.Done():
		s.left(tenant, queries)
		return nil, context.Cause(ctx)
	}
}

func (s *queryShare) left(tenant domain.TenantID, queries *tenantQueries) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if queries.users--; queries.users == 0 {
		delete(s.tenants, tenant)
	}
}
