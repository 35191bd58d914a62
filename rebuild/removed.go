package rebuild

import (
	"context"
	"errors"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// A rebuild folds what the log has. Where retention has removed events of its source that the new build has not seen, the documents
// would lack them: that is refused, unless somebody has accepted it, and then told. Retention announces what it is about to remove,
// and asks only then who still needs it; a rebuild is registered first, and looks only then at what is announced. So one of the two
// sees the other: what a rebuild needs stays, or the rebuild knows that it may be gone.

const acceptRemoved = "with acceptLoss it makes documents of what is left"

// checkRemoved refuses a rebuild that is about to be made where it would miss events; seen is up to where the new build has
// seen a tenant's log. It is for a quick answer: the worker looks again when the rebuild is registered.
func (r *Rebuilds) checkRemoved(ctx context.Context, row domain.Rebuild, seen func(domain.TenantID) (int64, error)) error {
	if row.AcceptLoss || row.Definition.Mode == domain.ModeLive {
		return nil
	}
	floors, err := r.floors(ctx, row)
	if err != nil {
		return err
	}
	var losses []domain.Loss
	for _, floor := range floors {
		from, err := seen(floor.Tenant)
		if err != nil {
			return err
		}
		if floor.AnnouncedTo > from {
			losses = append(losses, domain.Loss{Category: floor.Category, RemovedTo: floor.AnnouncedTo})
		}
	}
	if losses = domain.MergeLosses(nil, losses); len(losses) > 0 {
		return domain.EventsRemoved("", losses, acceptRemoved)
	}
	return nil
}

// checkRollback is checkRemoved for one that goes on with an old build. What else keeps it from being made is found when it is.
func (r *Rebuilds) checkRollback(ctx context.Context, row domain.Rebuild, undone domain.RebuildID) error {
	old, err := r.config.Store.Rebuild(ctx, row.ProjectionID, undone)
	if err != nil {
		return err
	}
	if old.State != domain.RebuildSwapped || old.Previous == nil || old.Previous.Build == 0 {
		return nil // it is refused for that
	}
	row.Build, row.Definition, row.Tenants = old.Previous.Build, old.Previous.Definition, old.Tenants
	driver := r.config.Drivers[row.Definition.Database]
	if driver == nil {
		return nil
	}
	return r.checkRemoved(ctx, row, func(tenant domain.TenantID) (int64, error) {
		seen, err := driver.Checkpoint(ctx, row.NewBuild(), tenant)
		if errors.Is(err, drivers.ErrNoTable) {
			return 0, nil
		}
		return seen, err
	})
}

// floors returns what was removed, or is about to be, of the source's categories, of the logs that a rebuild is about.
func (r *Rebuilds) floors(ctx context.Context, row domain.Rebuild) ([]domain.TenantFloor, error) {
	tenants := row.Tenants
	if len(tenants) == 0 && !row.Shared() {
		tenants = []domain.TenantID{row.Owner}
	}
	return r.config.Store.TenantFloors(ctx, tenants, row.Definition.Source.Categories)
}

// lacks notes what a pass over tenants' logs misses, by what is announced before it begins, or was removed when it has ended: from
// is up to where the build had seen them. It fails where that was not accepted.
func (a *attempt) lacks(ctx context.Context, from map[domain.TenantID]int64) error {
	floors, err := a.r.floors(ctx, a.row)
	if err != nil {
		return err
	}
	of := make(map[domain.TenantID][]domain.Loss)
	var all []domain.Loss
	for _, floor := range floors {
		if seen, ahead := from[floor.Tenant]; ahead && floor.AnnouncedTo > seen {
			loss := domain.Loss{Category: floor.Category, RemovedTo: floor.AnnouncedTo}
			of[floor.Tenant] = append(of[floor.Tenant], loss)
			all = append(all, loss)
		}
	}
	if len(all) == 0 {
		return nil
	}
	if !a.row.AcceptLoss {
		return failed("%s", domain.EventsRemoved("", domain.MergeLosses(nil, all), acceptRemoved).Message)
	}
	for tenant, losses := range of {
		if err := a.r.config.Store.PutLosses(ctx, tenant, a.row.ProjectionID, a.row.Build, losses); err != nil {
			return err
		}
	}
	return a.lost(ctx, all)
}

// lost adds to what the rebuild tells, and saves that: whoever takes over finds nothing missing behind what is saved.
func (a *attempt) lost(ctx context.Context, losses []domain.Loss) error {
	a.work.mu.Lock()
	defer a.work.mu.Unlock()
	a.work.row.Loss = domain.MergeLosses(a.work.row.Loss, losses)
	_, err := a.r.config.Store.SaveRebuild(ctx, a.work.row)
	return err
}
