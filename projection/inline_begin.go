package projection

import (
	"context"
	"fmt"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection/folding"
)

// An inline projection that finds events in the log is first followed asynchronously, like an async one. When it has
// caught up with a tenant's log, that tenant's appends take over.

// maxInlineLag is how many positions a build may lag to be caught up while the tenant's appends wait.
const maxInlineLag = 1000

// Begin makes the tenant's appends fold into a build that has nearly caught up with the log's head. If little is left,
// Begin folds it while the appends wait. begun is false if too much is left, or if the build is no longer the one to
// become inline.
func (in *Inline) Begin(ctx context.Context, tenant domain.TenantID, build domain.Build, fold *folding.Fold) (begun bool, err error) {
	driver, ok := in.config.Drivers[build.Database].(drivers.Transactional)
	if !ok || fold.Definition().Mode != domain.ModeInline {
		return false, nil
	}
	live := domain.Projection{ProjectionID: build.ProjectionID, Build: build.Number}
	begun, err = in.config.Store.BeginInline(ctx, tenant, live, AtHead(in.config.Store, driver, build, tenant, fold))
	if err != nil {
		return false, fmt.Errorf("have appends fold into build %d of projection %q: %w", build.Number, build.Name, err)
	}
	return begun, nil
}

// AtHead returns a function that reports whether a build is at the head of a tenant's log, to which nobody appends
// meanwhile. The function folds what is left, if that is little.
func AtHead(log Log, driver drivers.Driver, build domain.Build, tenant domain.TenantID, fold *folding.Fold) func(ctx context.Context, head int64) (bool, error) {
	return func(ctx context.Context, head int64) (bool, error) {
		checkpoint, err := driver.Checkpoint(ctx, build, tenant)
		if err != nil || head-checkpoint > maxInlineLag {
			return false, err
		}
		if checkpoint < head {
			err = CatchUpTo(ctx, log, driver, build, tenant, fold, head)
		}
		return err == nil, err
	}
}
