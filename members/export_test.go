package members

import "github.com/manifold-es/manifold/domain"

// Divide returns who works for each tenant.
func Divide(members []domain.MemberID, tenants []domain.TenantID) map[domain.TenantID]domain.MemberID {
	s := divide(members, tenants)
	owners := make(map[domain.TenantID]domain.MemberID)
	for _, tenant := range tenants {
		owners[tenant], _ = s.owner(tenant)
	}
	return owners
}
