package rebuild

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

// A tenant's row names the build that the tenant's appends fold into, so an inline projection is swapped tenant by
// tenant. A transaction that pauses the tenant's log moves the row when the new build is at the log's head. Later
// events are folded into the new build, and an append computed for the old one is retried. So a tenant's readers see
// all of the old build or all of the new one, both at the log's head. When no tenant is left, the projection's own row
// moves, as in any rebuild. docs/decisions/0025-inline-in-the-appends-transaction.md has the whole argument.

const (
	// maxMoveTries is how often a rebuild tries to reach the head of a tenant's log while appends continue. After that,
	// appends wait until it has.
	maxMoveTries = 3
	// movesAtOnce is how many tenants are moved at a time. Each takes one of the appends' connections.
	movesAtOnce = 2
)

// moveInline moves every tenant whose appends fold into another build of the projection to the new build, including
// tenants that arrive meanwhile. After an interruption, the next attempt moves the rest.
func (a *attempt) moveInline(ctx context.Context) error {
	p, err := a.r.config.Store.Projection(ctx, a.row.ProjectionID)
	if err != nil {
		return fmt.Errorf("look up the projection: %w", err)
	}
	for {
		builds, err := a.r.config.Store.InlineBuilds(ctx, p.ProjectionID)
		if err != nil {
			return err
		}
		builds = slices.DeleteFunc(builds, func(b domain.TenantBuild) bool {
			return b.Build == a.row.Build && a.row.Definition.Mode == domain.ModeInline || a.isFaulted(b.Tenant)
		})
		if len(builds) == 0 {
			return nil
		}
		group, moving := errgroup.WithContext(ctx)
		group.SetLimit(movesAtOnce)
		for _, from := range builds {
			group.Go(func() error {
				if err := a.leaveBehind(a.moveTenant(moving, p, from)); err != nil {
					return fmt.Errorf("tenant %s: %w", from.Tenant, err)
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
}

// moveTenant moves one tenant. If the new definition is not inline, the runner follows the tenant's build from then on;
// it is a tenant build until the whole projection is swapped.
func (a *attempt) moveTenant(ctx context.Context, p domain.Projection, from domain.TenantBuild) error {
	to := domain.TenantBuild{ProjectionID: from.ProjectionID, Tenant: from.Tenant, Build: a.row.Build, Definition: &a.row.Definition}
	if a.row.Definition.Mode != domain.ModeInline {
		to.Base = p.Build
	}
	store := a.r.config.Store
	for try := 1; ; try++ {
		if err := a.foldTenantUpToHead(ctx, from.Tenant); err != nil || a.isFaulted(from.Tenant) {
			return err
		}
		moved, err := store.MoveInline(ctx, from, to, func(ctx context.Context, head int64) (bool, error) {
			if !a.stored() {
				return true, nil
			}
			if try < maxMoveTries {
				checkpoint, err := a.driver.Checkpoint(ctx, a.build, from.Tenant)
				return err == nil && checkpoint >= head, err
			}
			ready, err := projection.AtHead(store, a.driver, a.build, from.Tenant, a.fold)(ctx, head)
			return ready, unfoldable(a.build, from.Tenant, err)
		})
		if domain.IsCode(err, domain.CodeConflict) {
			return nil // the tenant has another build by now, or none: the next InlineBuilds shows it
		}
		if err != nil || moved {
			return err
		}
	}
}

// foldTenantUpToHead folds a tenant's log into the new build up to the current head, saves the checkpoint, and checks
// the assertions on what changed.
func (a *attempt) foldTenantUpToHead(ctx context.Context, tenant domain.TenantID) error {
	if !a.stored() {
		return nil
	}
	head, err := a.r.config.Store.Head(ctx, tenant)
	if err != nil {
		return fmt.Errorf("read the log's head: %w", err)
	}
	if err := a.foldUpTo(ctx, []domain.Head{{Tenant: tenant, Position: head.Position}}, a.hurried()); err != nil {
		return err
	}
	if err := a.validateTouched(ctx, tenant); err != nil || a.isFaulted(tenant) {
		return err
	}
	return unfoldable(a.build, tenant, projection.CatchUpTo(ctx, a.r.config.Store, a.driver, a.build, tenant, a.fold, head.Position))
}

// followInline makes the runner follow a tenant's build, so that it can be paused like any other. The runner makes its
// successor inline again.
func (a *attempt) followInline(ctx context.Context, p domain.Projection, tenant domain.TenantID) error {
	builds, err := a.r.config.Store.InlineBuilds(ctx, p.ProjectionID)
	if err != nil {
		return err
	}
	for _, from := range builds {
		if from.Tenant != tenant {
			continue
		}
		to := from
		to.Base = p.Build // PinnedTo stays
		_, err := a.r.config.Store.MoveInline(ctx, from, to, func(context.Context, int64) (bool, error) { return true, nil })
		return err
	}
	return nil
}

// settleStrayBuilds moves tenants from stray inline builds to their projections' live builds. A build is stray if a
// process was killed, if a rebuild was cancelled after moving some tenants, or if a projection was deleted or reset.
func (r *Rebuilds) settleStrayBuilds(ctx context.Context) {
	stray, err := r.config.Store.StrayInlineBuilds(ctx)
	if err != nil {
		if ctx.Err() == nil {
			r.config.Log.Warn("stray inline builds cannot be listed; trying again", "error", err)
		}
		return
	}
	for _, from := range stray {
		err := r.settleStrayBuild(ctx, from)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !domain.IsCode(err, domain.CodeConflict) {
			r.config.Log.Warn("a tenant's appends fold into a stray inline build, and cannot be moved to the live build yet; trying again", "projection", from.Name,
				"tenant", from.Tenant.String(), "build", from.Build, "error", err)
		}
	}
}

func (r *Rebuilds) settleStrayBuild(ctx context.Context, from domain.TenantBuild) error {
	store := r.config.Store
	p, err := store.Projection(ctx, from.ProjectionID)
	if domain.IsCode(err, domain.CodeNotFound) {
		return store.EndInline(ctx, from)
	}
	if err != nil {
		return err
	}
	to := domain.TenantBuild{ProjectionID: from.ProjectionID, Tenant: from.Tenant, Build: p.Build, Definition: &p.Definition}
	ready := func(context.Context, int64) (bool, error) { return true, nil }
	if p.Definition.Mode != domain.ModeInline || from.Base != 0 {
		to.Base = -1 // the runner follows the projection's own build, and makes it inline if necessary
	}
	if p.Definition.Mode != domain.ModeLive && p.Build != from.Build {
		driver, err := r.driver(p.Definition.Database)
		if err != nil {
			return err
		}
		fold, err := folding.CompileIn(ctx, p.Definition, r.config.Handlers)
		if err != nil {
			return err
		}
		fold = fold.WithUpcasters(r.config.Upcasters)
		head, err := store.Head(ctx, from.Tenant)
		if err == nil {
			err = projection.CatchUpTo(ctx, store, driver, p.LiveBuild(), from.Tenant, fold, head.Position)
		}
		_, faulted := errors.AsType[*folding.EventError](err)
		switch {
		case faulted || errors.Is(err, drivers.ErrNoTable):
			to.Base = -1 // the runner finds and reports it
		case err != nil:
			return err
		default:
			ready = projection.AtHead(store, driver, p.LiveBuild(), from.Tenant, fold)
		}
	}
	_, err = store.MoveInline(ctx, from, to, ready)
	return err
}
