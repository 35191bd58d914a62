package rebuild

import (
	"context"

	"github.com/manifold-es/manifold/domain"
)

// Cancel asks for a rebuild to be cancelled, whatever its phase, and returns it as it is then: its worker ends it soon.
// One that has ended is domain.CodeConflict. Tenants to whom a rebuild for some tenants was swapped already keep it.
func (r *Rebuilds) Cancel(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error) {
	return r.order(ctx, id, rebuild, r.config.Store.CancelRebuild)
}

// Approve lets a rebuild swap that waits for it, or will, and returns it as it is then. One that has ended, or that needs
// no approval, is domain.CodeConflict.
func (r *Rebuilds) Approve(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error) {
	return r.order(ctx, id, rebuild, r.config.Store.ApproveRebuild)
}

// Pause lets a rebuild rest, and returns it as it is then. What it has done stays. It does not go on before Resume, also
// in a process that is started later. One that has ended is domain.CodeConflict.
func (r *Rebuilds) Pause(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error) {
	return r.order(ctx, id, rebuild, r.config.Store.PauseRebuild)
}

// Resume lets a rebuild go on after Pause, and returns it as it is then. One that has ended is domain.CodeConflict.
func (r *Rebuilds) Resume(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error) {
	return r.order(ctx, id, rebuild, r.config.Store.ResumeRebuild)
}

func (r *Rebuilds) order(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID, order func(context.Context, domain.ProjectionID, domain.RebuildID) error) (domain.Rebuild, error) {
	if err := order(ctx, id, rebuild); err != nil {
		return domain.Rebuild{}, err
	}
	r.Wake()
	return r.config.Store.Rebuild(ctx, id, rebuild)
}

// Rollback undoes a rebuild that was swapped in: it queues one that lets the build from before follow on from its own
// checkpoints and swaps it in again, with its definition. domain.CodeConflict where the rebuild is not swapped, where
// something else has gone live since, and where the old build is not kept any more; domain.CodeEventsRemoved where retention has
// removed events that the old build has not seen, as for Start, unless acceptLoss says that it may do without them. by is who wants it.
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
