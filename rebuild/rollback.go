package rebuild

import (
	"context"
	"errors"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// Rollback undoes a swapped rebuild. It queues a rebuild that catches up the previous build from its own checkpoints
// and swaps it in again with its definition. The error is domain.CodeConflict if the rebuild was not swapped, if
// another build has gone live since, or if the old build is no longer kept. It is domain.CodeEventsRemoved if retention
// has removed events that the old build has not seen, as for Start, unless acceptLoss is set. by is the author.
func (r *Rebuilds) Rollback(ctx context.Context, id domain.ProjectionID, undone domain.RebuildID, by string, acceptLoss bool) (domain.Rebuild, error) {
	rebuild := domain.Rebuild{
		ProjectionID: id, ID: domain.NewRebuildID(), By: by, State: domain.RebuildQueued,
		RebuildOptions: domain.RebuildOptions{Keep: r.config.Keep, AcceptLoss: acceptLoss},
		MaxFaulted:     domain.MaxFaultedTenants,
	}
	if err := r.checkRollback(ctx, rebuild, undone); err != nil {
		return domain.Rebuild{}, err
	}
	rebuild, err := r.config.Store.CreateRollback(ctx, undone, rebuild)
	if err != nil {
		return domain.Rebuild{}, err
	}
	r.Wake()
	return rebuild, nil
}

// checkRollback is checkRemoved for a rollback. CreateRollback checks everything else.
func (r *Rebuilds) checkRollback(ctx context.Context, row domain.Rebuild, undone domain.RebuildID) error {
	old, err := r.config.Store.Rebuild(ctx, row.ProjectionID, undone)
	if err != nil {
		return err
	}
	if old.State != domain.RebuildSwapped || old.Previous == nil || old.Previous.Build == 0 {
		return nil // CreateRollback refuses it
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
