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
)

// The build that a tenant's appends fold into is named by the tenant's row, so an inline projection is swapped tenant by
// tenant: a transaction that holds the tenant's log still, when the new build is at its head, moves the row. What is
// appended behind that is folded into the new build, and an append that was worked out for the old one is made again. So
// a tenant's readers see all of the old or all of the new, and both at the log's head. When no tenant is left, the
// projection's own row moves, as ever. docs/decisions/0025-inline-in-the-appends-transaction.md has the whole argument.

// InlineStore is what rebuilds of inline projections ask of Manifold's own database.
type InlineStore interface {
	InlineBuilds(ctx context.Context, id domain.ProjectionID) ([]domain.TenantBuild, error)
	StrayInlineBuilds(ctx context.Context) ([]domain.TenantBuild, error)
	MoveInline(ctx context.Context, from, to domain.TenantBuild, ready func(ctx context.Context, head int64) (bool, error)) (moved bool, err error)
	EndInline(ctx context.Context, build domain.TenantBuild) error
}

const (
	// inlineTries is how often a tenant's log is caught up with beside its appends, until what is left is folded while they
	// wait.
	inlineTries = 3
	// inlineAtOnce is how many tenants are moved at a time: each holds a connection of the appends' while it is.
	inlineAtOnce = 2
)

// moveInline moves every tenant whose appends fold into another build of the projection to the new one. Tenants that come
// meanwhile are among them. Cut off in between, the next attempt goes on with the rest.
func (a *attempt) moveInline(ctx context.Context) error {
	p, err := a.r.config.Store.Projection(ctx, a.row.ProjectionID)
	if err != nil {
		return fmt.Errorf("look the projection up: %w", err)
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
		group.SetLimit(inlineAtOnce)
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

// moveTenant moves one tenant. Where the new definition is not inline, its build is followed behind the appends from then
// on: it is the tenant's own until it is everybody's.
func (a *attempt) moveTenant(ctx context.Context, p domain.Projection, from domain.TenantBuild) error {
	to := domain.TenantBuild{ProjectionID: from.ProjectionID, Tenant: from.Tenant, Build: a.row.Build, Definition: &a.row.Definition}
	if a.row.Definition.Mode != domain.ModeInline {
		to.Base = p.Build
	}
	store := a.r.config.Store
	for try := 1; ; try++ {
		if err := a.passTenant(ctx, from.Tenant); err != nil || a.isFaulted(from.Tenant) {
			return err
		}
		moved, err := store.MoveInline(ctx, from, to, func(ctx context.Context, head int64) (bool, error) {
			if !a.stored() {
				return true, nil
			}
			if try < inlineTries {
				checkpoint, err := a.driver.Checkpoint(ctx, a.build, from.Tenant)
				return err == nil && checkpoint >= head, err
			}
			ready, err := projection.AtHead(store, a.driver, a.build, from.Tenant, a.fold)(ctx, head)
			return ready, unfoldable(a.build, from.Tenant, err)
		})
		if domain.IsCode(err, domain.CodeConflict) {
			return nil // it has another build by now, or none: the next list tells
		}
		if err != nil || moved {
			return err
		}
	}
}

// passTenant folds a tenant's log into the new build up to where its head is now, with the checkpoint saved, and holds what
// changed against the assertions.
func (a *attempt) passTenant(ctx context.Context, tenant domain.TenantID) error {
	if !a.stored() {
		return nil
	}
	head, err := a.r.config.Store.Head(ctx, tenant)
	if err != nil {
		return fmt.Errorf("read the log's head: %w", err)
	}
	if err := a.pass(ctx, a.r.config.Store, []domain.Head{{Tenant: tenant, Position: head.Position}}); err != nil {
		return err
	}
	if err := a.validateTouched(ctx, tenant); err != nil || a.isFaulted(tenant) {
		return err
	}
	return unfoldable(a.build, tenant, projection.CatchUpTo(ctx, a.r.config.Store, a.driver, a.build, tenant, a.fold, head.Position))
}

// followInline has a tenant's build followed behind the appends, so that it can be held still like any other. The runner
// makes what comes after it inline again.
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

// settleInline brings tenants' inline builds that are stray to what their projections have now: a process was killed, a
// rebuild was cancelled when it had moved some tenants, a projection was deleted or reset.
func (r *Rebuilds) settleInline(ctx context.Context) {
	stray, err := r.config.Store.StrayInlineBuilds(ctx)
	if err != nil {
		if ctx.Err() == nil {
			r.config.Log.Warn("stray inline builds cannot be listed; trying again", "error", err)
		}
		return
	}
	for _, from := range stray {
		err := r.settleStray(ctx, from)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !domain.IsCode(err, domain.CodeConflict) {
			r.config.Log.Warn("a tenant's inline build is not its projection's, and cannot be brought there yet; trying again", "projection", from.Name,
				"tenant", from.Tenant.String(), "build", from.Build, "error", err)
		}
	}
}

func (r *Rebuilds) settleStray(ctx context.Context, from domain.TenantBuild) error {
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
		to.Base = -1 // the runner follows the projection's own, and makes it inline if it is to be
	}
	if p.Definition.Mode != domain.ModeLive && p.Build != from.Build {
		driver := r.config.Drivers[p.Definition.Database]
		if driver == nil {
			return fmt.Errorf("there is no database %q in this process's configuration", p.Definition.Database)
		}
		fold, err := projection.CompileIn(ctx, p.Definition, r.config.Handlers)
		if err != nil {
			return err
		}
		fold = fold.Through(r.config.Upcasters)
		head, err := store.Head(ctx, from.Tenant)
		if err == nil {
			err = projection.CatchUpTo(ctx, store, driver, p.LiveBuild(), from.Tenant, fold, head.Position)
		}
		_, faulted := errors.AsType[*projection.EventError](err)
		switch {
		case faulted || errors.Is(err, drivers.ErrNoTable):
			to.Base = -1 // the runner meets it, and says so
		case err != nil:
			return err
		default:
			ready = projection.AtHead(store, driver, p.LiveBuild(), from.Tenant, fold)
		}
	}
	_, err = store.MoveInline(ctx, from, to, ready)
	return err
}
