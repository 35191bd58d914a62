package subscription

import (
	"context"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// Selection returns which events a group is of, for who asks with each request whether a caller may have to do with it. A group
// that is in use is answered from memory: that another process has changed its definition may not show for a moment.
func (g *Groups) Selection(ctx context.Context, tenant domain.TenantID, name string) (domain.Selection, error) {
	gr, err := g.use(ctx, tenant, name)
	if err != nil {
		return domain.Selection{}, err
	}
	return gr.known.Load().Selection, nil
}

// statusOf returns a group with how far it has come, and what was removed of its source.
func (g *Groups) statusOf(ctx context.Context, tenant domain.TenantID, name string) (domain.GroupStatus, error) {
	status, err := g.config.Store.GroupStatus(ctx, tenant, name)
	if err != nil {
		return domain.GroupStatus{}, err
	}
	of := selection{Selection: status.Selection}
	floors, err := g.config.Store.Floors(ctx, tenant, of.categories(), 1)
	if err != nil {
		return domain.GroupStatus{}, err
	}
	status.RemovedTo = removedTo(floors, &status.Selection)
	return status, nil
}

// removedTo is the highest position of a selection's categories that was removed; 0: none.
func removedTo(floors []domain.RetentionFloor, of *domain.Selection) int64 {
	highest, categories := int64(0), (&selection{Selection: *of}).categories()
	for _, floor := range floors {
		if len(categories) == 0 || slices.Contains(categories, floor.Category) {
			highest = max(highest, floor.RemovedTo)
		}
	}
	return highest
}
