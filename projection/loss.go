package projection

import (
	"context"
	"fmt"
	"slices"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
)

// Documents lack the events that retention removed before they were folded. A build records such losses, per tenant,
// before it saves what it has folded after them. Retention waits for every live build. So losses happen only to a build
// that starts after a removal, or if an operator has forced one.

// LossStore records what builds lack.
type LossStore interface {
	Floors(ctx context.Context, tenant domain.TenantID, categories []string, from int64) ([]domain.RetentionFloor, error)
	PutLosses(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, losses []domain.Loss) error
}

// lossesOf returns what a fold misses that continues at a position.
func lossesOf(floors []domain.RetentionFloor, from int64) []domain.Loss {
	var losses []domain.Loss
	for _, floor := range floors {
		if floor.RemovedTo >= from {
			losses = append(losses, domain.Loss{Category: floor.Category, RemovedTo: floor.RemovedTo})
		}
	}
	return domain.MergeLosses(nil, losses)
}

// recordLosses records the losses of a pair's build that has read its log from position from on, for each category that
// has new ones. removedTo is the highest position removed at or after from; 0: none. In some categories less may be
// removed.
func (r *Runner) recordLosses(ctx context.Context, p *pair, fold *folding.Fold, from, removedTo int64) error {
	if removedTo == 0 {
		p.lacked = nil
		return nil
	}
	floors, err := r.config.Store.Floors(ctx, p.tenant, fold.Definition().Source.Categories, from)
	if err != nil {
		return err
	}
	losses := slices.DeleteFunc(lossesOf(floors, from), func(l domain.Loss) bool { return l.RemovedTo <= p.lacked[l.Category] })
	if len(losses) == 0 {
		return nil
	}
	if err := r.config.Store.PutLosses(ctx, p.tenant, p.followed.id, p.build, losses); err != nil {
		return err
	}
	if p.lacked == nil {
		p.lacked = make(map[string]int64, len(losses))
	}
	for _, loss := range losses {
		p.lacked[loss.Category] = loss.RemovedTo
	}
	r.config.Log.Warn("retention has removed events of a projection's source that it has not seen: its documents lack them", "projection", p.followed.id.Name,
		"tenant", p.tenant.String(), "build", p.build, "from", from, "removedTo", removedTo)
	return nil
}

// mustHaveAll refuses to fold a projection's documents again if events of its source are removed, or about to be.
func (c *Catalog) mustHaveAll(ctx context.Context, p domain.Projection) error {
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
		return domain.EventsRemoved("", losses, "with acceptLoss its documents are made of what is left")
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
		return nil, fmt.Errorf("look for what is gone of the log: %w", err)
	}
	return lossesOf(floors, 1), nil
}
