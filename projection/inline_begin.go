package projection

import (
	"context"
	"fmt"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// An inline projection that finds events in the log is followed behind the appends at first, as an async one is. When it has
// caught up with a tenant's log, that tenant's appends take over.

// InlineStore is what an Inline asks of Manifold's own database.
type InlineStore interface {
	Log
	BeginInline(ctx context.Context, tenant domain.TenantID, live domain.Projection, ready func(ctx context.Context, head int64) (bool, error)) (begun bool, err error)
}

// inlineRest is how many positions a build may be behind the head to be caught up while the tenant's appends wait.
const inlineRest = 1000

// Begin has the tenant's appends fold into a build that has been followed up to about the log's head: what is left is
// folded while they wait, if it is little. begun is false where it is not, or not any more, what is to be made inline.
func (in *Inline) Begin(ctx context.Context, tenant domain.TenantID, build domain.Build, fold *Fold) (begun bool, err error) {
	driver, ok := in.config.Drivers[build.Database].(drivers.Transactional)
	if !ok || fold.definition.Mode != domain.ModeInline {
		return false, nil
	}
	live := domain.Projection{ProjectionID: build.ProjectionID, Build: build.Number}
	begun, err = in.config.Store.BeginInline(ctx, tenant, live, AtHead(in.config.Store, driver, build, tenant, fold))
	if err != nil {
		return false, fmt.Errorf("have appends fold into build %d of projection %q: %w", build.Number, build.Name, err)
	}
	return begun, nil
}

// AtHead returns what says whether a build is at the head of a tenant's log, to which nobody appends meanwhile: it folds
// what is left, if that is little.
func AtHead(log Log, driver drivers.Driver, build domain.Build, tenant domain.TenantID, fold *Fold) func(ctx context.Context, head int64) (bool, error) {
	return func(ctx context.Context, head int64) (bool, error) {
		checkpoint, err := driver.Checkpoint(ctx, build, tenant)
		if err != nil || head-checkpoint > inlineRest {
			return false, err
		}
		if checkpoint < head {
			err = CatchUpTo(ctx, log, driver, build, tenant, fold, head)
		}
		return err == nil, err
	}
}

// beginInline has appends take over the build of a turn that has caught up, where it is to be inline. It returns errInline
// when they have.
func (r *Runner) beginInline(ctx context.Context, replay *Replay) error {
	if r.config.Inline == nil || replay.Fold.definition.Mode != domain.ModeInline {
		return nil
	}
	begun, err := r.config.Inline.Begin(ctx, replay.Tenant, replay.Build, replay.Fold)
	if err == nil && begun {
		err = errInline
	}
	return err
}
