package retention

import (
	"context"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// RetentionHolds returns the groups of a tenant that may still have to read events of a category. It also returns the
// rebuilds that are running over it for the tenant, which hold all of it.
func (s *Postgres) RetentionHolds(ctx context.Context, tenant domain.TenantID, category string) ([]domain.RetentionHold, error) {
	holds, err := s.groups.GroupHolds(ctx, tenant, category)
	if err != nil {
		return nil, err
	}
	rebuilds, err := s.registry.RunningRebuilds(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range rebuilds {
		categories := r.Definition.Source.Categories
		switch {
		case r.Owner != tenant && !r.Shared(),
			len(r.Tenants) > 0 && !slices.Contains(r.Tenants, tenant),
			len(categories) > 0 && !slices.Contains(categories, category):
		default:
			holds = append(holds, domain.RetentionHold{Kind: domain.HoldRebuild, Name: r.Name})
		}
	}
	return holds, nil
}
