package rebuild

import (
	"context"

	"github.com/manifold-es/manifold/domain"
)

// Cancel requests the cancellation of a rebuild in any phase, and returns the rebuild: its worker ends it soon. If it
// has already ended, the error is domain.CodeConflict. Tenants that a rebuild for some tenants has already swapped keep
// the new build.
func (r *Rebuilds) Cancel(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error) {
	return r.order(ctx, id, rebuild, r.config.Store.CancelRebuild)
}

// Approve lets a rebuild swap that waits for approval, or will, and returns the rebuild. If it has ended or needs no
// approval, the error is domain.CodeConflict.
func (r *Rebuilds) Approve(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error) {
	return r.order(ctx, id, rebuild, r.config.Store.ApproveRebuild)
}

// Pause pauses a rebuild and returns it. Its progress is kept. It does not continue before Resume, even after a
// restart. If it has ended, the error is domain.CodeConflict.
func (r *Rebuilds) Pause(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error) {
	return r.order(ctx, id, rebuild, r.config.Store.PauseRebuild)
}

// Resume continues a rebuild after Pause and returns it. If it has ended, the error is domain.CodeConflict.
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
