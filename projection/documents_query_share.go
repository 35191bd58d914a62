package projection

import (
	"context"
	"sync"

	"github.com/manifold-es/manifold/domain"
)

// queriesAtOnce is how many queries of unknown cost one tenant may have at databases at the same time. It is less than
// a driver's connections for them, so one tenant's queries cannot block all others.
const queriesAtOnce = 3

// queryShare limits each tenant to its share of concurrent queries. The zero value is ready to use, and safe for
// concurrent use.
type queryShare struct {
	mu      sync.Mutex
	tenants map[domain.TenantID]*tenantQueries // tenants with queries under way
}

type tenantQueries struct {
	places chan struct{}
	users  int // under way and waiting
}

// enter waits until the tenant has a free slot, or ctx ends. leave returns the slot.
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
