package projection

import (
	"context"
	"fmt"

	"github.com/manifold-es/manifold/domain"
)

// Documents lack the events that retention removed before they were folded. A build records such losses, per tenant,
// before it saves what it has folded after them. Retention waits for every live build. So losses happen only to a build
// that starts after a removal, or if an operator has forced one.

// requireAllEvents refuses to fold a projection's documents again if events of its source are removed, or about to be.
func (c *Catalog) requireAllEvents(ctx context.Context, p domain.Projection) error {
	var tenants []domain.TenantID
	if !p.Shared() {
		tenants = []domain.TenantID{p.Owner}
	}
	floors, err := c.config.Store.TenantFloors(ctx, tenants, p.Definition.Source.Categories)
	if err != nil {
		return err
	}
	var losses []domain.Loss
	for _, floor := range floors {
		losses = append(losses, domain.Loss{Category: floor.Category, RemovedTo: floor.AnnouncedTo})
	}
	if losses = domain.MergeLosses(nil, losses); len(losses) > 0 {
		return domain.EventsRemoved("", losses, "with acceptLoss its documents are folded from the remaining events")
	}
	return nil
}

// loss returns what a tenant's documents of a projection lack. A live projection is folded now, so it lacks everything
// removed.
func (c *Catalog) loss(ctx context.Context, tenant domain.TenantID, p domain.Projection) ([]domain.Loss, error) {
	if p.Definition.Mode != domain.ModeLive {
		return c.config.Store.Losses(ctx, tenant, p.ProjectionID, p.Build)
	}
	floors, err := c.config.Store.Floors(ctx, tenant, p.Definition.Source.Categories, 1)
	if err != nil {
		return nil, fmt.Errorf("read what retention has removed: %w", err)
	}
	return lossesOf(floors, 1), nil
}
