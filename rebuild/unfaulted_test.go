package rebuild

import (
	"errors"
	"fmt"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// A rebuild continues as long as one tenant with events to fold has no fault, or one was swapped before a worker died.
// Tenants without events do not count.
func TestRebuildNeedsOneUnfaultedTenant(t *testing.T) {
	t.Parallel()
	a, b, c := domain.TenantID{1}, domain.TenantID{2}, domain.TenantID{3}
	for _, test := range []struct {
		name                     string
		faulted, events, swapped []domain.TenantID
		want                     string
	}{
		{"no fault", nil, []domain.TenantID{a}, nil, ""},
		{"no fault and no events", nil, nil, nil, ""},
		{"one of two with events", []domain.TenantID{a}, []domain.TenantID{a, b}, nil, ""},
		{"the only one", []domain.TenantID{a}, []domain.TenantID{a}, nil, fmt.Sprintf("tenant %s: why 1", a)},
		{"the only one, before its events were counted", []domain.TenantID{a}, nil, nil, fmt.Sprintf("tenant %s: why 1", a)},
		{"all with events", []domain.TenantID{c, b}, []domain.TenantID{b, c}, nil,
			fmt.Sprintf("none of the 2 tenants with events to fold can be swapped; the first, tenant %s: why 2", b)},
		{"the rest of those for some tenants", []domain.TenantID{b}, []domain.TenantID{b}, []domain.TenantID{a}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			it := &attempt{
				faulted: make(map[domain.TenantID]domain.TenantFault), hasEvents: make(map[domain.TenantID]bool),
				swapped: map[domain.TenantID]bool{c: false},
			}
			for _, tenant := range test.faulted {
				it.faulted[tenant] = domain.TenantFault{Tenant: tenant, Reason: fmt.Sprint("why ", tenant[0])}
			}
			for _, tenant := range test.events {
				it.hasEvents[tenant] = true
			}
			for _, tenant := range test.swapped {
				it.swapped[tenant] = true
			}
			err := it.requireUnfaulted()
			if test.want == "" {
				if err != nil {
					t.Errorf("it fails: %v", err)
				}
				return
			}
			if bad, ok := errors.AsType[*failure](err); !ok || bad.message != test.want || bad.fault != nil {
				t.Errorf("it is %v; want %s", err, test.want)
			}
		})
	}
}
