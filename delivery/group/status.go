package group

import (
	"context"
	"slices"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
)

// Selection returns which events a group selects. It is cheap enough to authorize every request: for a group that is in
// use it answers from memory. A change by another process may take a moment to show.
func (g *Groups) Selection(ctx context.Context, tenant domain.TenantID, name string) (domain.Selection, error) {
	gr, err := g.use(ctx, tenant, name)
	if err != nil {
		return domain.Selection{}, err
	}
	return gr.known.Load().Selection, nil
}

// statusOf returns a group with its progress and what was removed from its source.
func (g *Groups) statusOf(ctx context.Context, tenant domain.TenantID, name string) (domain.GroupStatus, error) {
	status, err := g.config.Store.GroupStatus(ctx, tenant, name)
	if err != nil {
		return domain.GroupStatus{}, err
	}
	of := selection.Selection{Selection: status.Selection}
	floors, err := g.config.Events.Floors(ctx, tenant, of.InCategories(), 1)
	if err != nil {
		return domain.GroupStatus{}, err
	}
	status.RemovedTo = removedTo(floors, &status.Selection)
	return status, nil
}

// removedTo returns the highest removed position in a selection's categories, or 0 if there is none.
func removedTo(floors []domain.RetentionFloor, of *domain.Selection) int64 {
	highest, categories := int64(0), (&selection.Selection{Selection: *of}).InCategories()
	for _, floor := range floors {
		if len(categories) == 0 || slices.Contains(categories, floor.Category) {
			highest = max(highest, floor.RemovedTo)
		}
	}
	return highest
}
