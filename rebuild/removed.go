package rebuild

import (
	"context"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// A rebuild folds what is left in the log. If retention has removed events of its source that the new build has not
// seen, the documents would lack them. A tenant of a shared projection then stays on its build, like one whose events
// cannot be folded (docs/decisions/0060-a-fault-stops-one-tenant.md). A rebuild for one tenant alone is refused. With
// acceptLoss the rebuild makes documents of the remaining events, and reports what is missing.
//
// Retention first announces what it is about to remove, and then asks who still needs it. A rebuild is first
// registered, and then reads what is announced. So one of the two sees the other: either the events stay, or the
// rebuild knows that they may be gone.

const acceptRemoved = "with acceptLoss it uses the remaining events"

// checkRemoved refuses a new rebuild that would miss events of every tenant, or of more tenants than it may leave
// behind. seen returns how far the new build has seen a tenant's log. The check is a quick answer: the worker checks
// again once the rebuild is registered.
func (r *Rebuilds) checkRemoved(ctx context.Context, row domain.Rebuild, seen func(domain.TenantID) (int64, error)) error {
	if row.AcceptLoss || row.Definition.Mode == domain.ModeLive {
		return nil
	}
	floors, err := r.floors(ctx, row)
	if err != nil {
		return err
	}
	missing := make(map[domain.TenantID][]domain.Loss)
	var all []domain.Loss
	for _, floor := range floors {
		from, err := seen(floor.Tenant)
		if err != nil {
			return err
		}
		if floor.AnnouncedTo > from {
			loss := domain.Loss{Category: floor.Category, RemovedTo: floor.AnnouncedTo}
			missing[floor.Tenant], all = append(missing[floor.Tenant], loss), append(all, loss)
		}
	}
	if len(all) == 0 {
		return nil
	}
	if row.Shared() && len(missing) <= row.MaxFaulted {
		heads, err := r.headsOf(ctx, row)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(heads, func(h domain.Head) bool { return h.Position > 0 && missing[h.Tenant] == nil }) {
			return nil
		}
	}
	return domain.EventsRemoved("", domain.MergeLosses(nil, all), acceptRemoved)
}

// floors returns what was removed, or is about to be, from the source's categories in the logs of a rebuild.
func (r *Rebuilds) floors(ctx context.Context, row domain.Rebuild) ([]domain.TenantFloor, error) {
	tenants := row.Tenants
	if len(tenants) == 0 && !row.Shared() {
		tenants = []domain.TenantID{row.Owner}
	}
	return r.config.Store.TenantFloors(ctx, tenants, row.Definition.Source.Categories)
}

// announcedTo is the position up to which events of a category may be missing before a pass over a log; removedTo is
// the one after it.
func announcedTo(floor domain.TenantFloor) int64 { return floor.AnnouncedTo }
func removedTo(floor domain.TenantFloor) int64   { return floor.RemovedTo }

// recordLosses finds the events that a pass over tenants' logs misses. from is how far the build had seen the logs.
// Unless the loss is accepted, it leaves those tenants behind.
func (a *attempt) recordLosses(ctx context.Context, from map[domain.TenantID]int64, gone func(domain.TenantFloor) int64) error {
	floors, err := a.r.floors(ctx, a.row)
	if err != nil {
		return err
	}
	missing := make(map[domain.TenantID][]domain.Loss)
	var all []domain.Loss
	for _, floor := range floors {
		if seen, ahead := from[floor.Tenant]; ahead && gone(floor) > seen && !a.isFaulted(floor.Tenant) {
			loss := domain.Loss{Category: floor.Category, RemovedTo: gone(floor)}
			missing[floor.Tenant], all = append(missing[floor.Tenant], loss), append(all, loss)
		}
	}
	for tenant, losses := range missing {
		if !a.row.AcceptLoss {
			reason := domain.EventsRemoved("", domain.MergeLosses(nil, losses), acceptRemoved).Message
			if err := a.leaveBehind(tenantFailure(a.build, tenant, 0, reason)); err != nil {
				return err
			}
		}
		// Record it even for a tenant that is left behind: the next attempt may find the tenant folded past events
		// removed by force.
		if err := a.r.config.Store.PutLosses(ctx, tenant, a.row.ProjectionID, a.row.Build, losses); err != nil {
			return err
		}
	}
	if len(all) == 0 || !a.row.AcceptLoss {
		return nil
	}
	return a.saveLosses(ctx, all)
}

// saveLosses adds losses to the rebuild's row and saves it, so that a later worker does not miss them.
func (a *attempt) saveLosses(ctx context.Context, losses []domain.Loss) error {
	a.work.mu.Lock()
	defer a.work.mu.Unlock()
	a.work.row.Loss = domain.MergeLosses(a.work.row.Loss, losses)
	_, err := a.r.config.Store.SaveRebuild(ctx, a.work.row)
	return err
}
