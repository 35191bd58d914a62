package drivers

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// Override says that one tenant's documents come from another build of the same projection, in the same database.
type Override struct {
	Tenant domain.TenantID
	Build  domain.Build
}

// Overridden is a build that provides the documents of some tenants.
type Overridden struct {
	Build   domain.Build
	Tenants []domain.TenantID // at least one
}

// GroupOverrides groups the overrides of a build by the builds that they name. Builds are sorted by number and tenants
// by id, so that equal overrides give equal results. An override that names the build itself is omitted. The error is a
// *domain.Error if a tenant is nil or has two overrides, or if a build belongs to another projection.
func GroupOverrides(build domain.Build, overrides []Override) ([]Overridden, error) {
	overrides = slices.SortedFunc(slices.Values(overrides), func(a, b Override) int { return bytes.Compare(a.Tenant[:], b.Tenant[:]) })
	for i, override := range overrides {
		switch {
		case override.Tenant == domain.Everyone:
			return nil, domain.Errorf(domain.CodeInvalidRequest, "overrides", "one has no tenant")
		case i > 0 && override.Tenant == overrides[i-1].Tenant:
			return nil, domain.Errorf(domain.CodeInvalidRequest, "overrides", "tenant %s has two of them", override.Tenant)
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
