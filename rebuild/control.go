package rebuild

import (
	"context"

	"github.com/manifold-es/manifold/domain"
)

// Cancel requests the cancellation of a rebuild in any phase, and returns the rebuild: its worker ends it soon. If it
// has already ended, the error is domain.CodeConflict. Tenants that a rebuild for some tenants has already swapped keep
// the new build.
func (r *Rebuilds) Cancel(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error) {
	return r.control(ctx, id, rebuild, r.config.Store.CancelRebuild)
}

// Approve lets a rebuild swap that waits for approval, or will, and returns the rebuild. If it has ended or needs no
// approval, the error is domain.CodeConflict.
func (r *Rebuilds) Approve(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error) {
	return r.control(ctx, id, rebuild, r.config.Store.ApproveRebuild)
}

// Pause pauses a rebuild and returns it. Its progress is kept. It does not continue before Resume, even after a
// restart. If it has ended, the error is domain.CodeConflict.
func (r *Rebuilds) Pause(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error) {
	return r.control(ctx, id, rebuild, r.config.Store.PauseRebuild)
}

// Resume continues a rebuild after Pause and returns it. If it has ended, the error is domain.CodeConflict.
func (r *Rebuilds) Resume(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error) {
	return r.control(ctx, id, rebuild, r.config.Store.ResumeRebuild)
}

func (r *Rebuilds) control(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID, order func(context.Context, domain.ProjectionID, domain.RebuildID) error) (domain.Rebuild, error) {
	if err := order(ctx, id, rebuild); err != nil {
		return domain.Rebuild{}, err
	}
	r.Wake()
	return r.config.Store.Rebuild(ctx, id, rebuild)
}
