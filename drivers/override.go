package drivers

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// Override says that one tenant's documents are those of another build of the same projection, in the same database.
type Override struct {
	Tenant domain.TenantID
	Build  domain.Build
}

// Overridden is a build from which the documents of some tenants come.
type Overridden struct {
	Build   domain.Build
	Tenants []domain.TenantID // at least one
}

// GroupOverrides gives the overrides of a build together by their builds: those in the order of their numbers, and the
// tenants in theirs, so that the same overrides give the same. One that names the build itself is left out. It is a
// *domain.Error where a tenant has two, or there is none, or where a build is another projection's.
func GroupOverrides(build domain.Build, overrides []Override) ([]Overridden, error) {
	overrides = slices.SortedFunc(slices.Values(overrides), func(a, b Override) int { return bytes.Compare(a.Tenant[:], b.Tenant[:]) })
	for i, override := range overrides {
		switch {
		case override.Tenant == domain.Everyone:
			return nil, domain.Errorf(domain.CodeInvalidRequest, "overrides", "one is for no tenant")
		case i > 0 && override.Tenant == overrides[i-1].Tenant:
			return nil, domain.Errorf(domain.CodeInvalidRequest, "overrides", "tenant %s has two", override.Tenant)
		case override.Build.ProjectionID != build.ProjectionID:
			return nil, domain.Errorf(domain.CodeInvalidRequest, "overrides", "that of tenant %s is a build of %s, not of %s", override.Tenant, override.Build.Name, build.Name)
		}
	}
	slices.SortStableFunc(overrides, func(a, b Override) int { return cmp.Compare(a.Build.Number, b.Build.Number) })
	var groups []Overridden
	for _, override := range overrides {
		switch last := len(groups) - 1; {
		case override.Build.Number == build.Number:
		case last >= 0 && groups[last].Build.Number == override.Build.Number:
			groups[last].Tenants = append(groups[last].Tenants, override.Tenant)
		default:
			groups = append(groups, Overridden{override.Build, []domain.TenantID{override.Tenant}})
		}
	}
	return groups, nil
}
