package pg

import "github.com/manifold-es/manifold/domain"

// IsStalled reports whether a tenant shares connections with others whose calls are not answered.
func (p *Pool) IsStalled(tenant domain.TenantID) bool { return p.isStalled(tenant) }
