package rebuild

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// swap makes the new build live, in the way that the projection's mode and the rebuild require.
func (a *attempt) swap(ctx context.Context) error {
	if len(a.row.Tenants) > 0 {
		return a.swapTenants(ctx)
	}
	return a.swapAll(ctx)
}

// swapAll pauses the live build, catches up with every head that the live build may still save, and swaps for all
// tenants at once.
//
// A live worker saves only what it read in a reading that showed no hold. Such a reading took the log's head before it
// read the projection's row, so it came before the hold. The heads that swapAll reads after placing the hold are at or
// above everything in it. So the new build never lags behind what readers have seen of the old one.
// docs/decisions/0002-swap-by-hold.md has the whole argument.
func (a *attempt) swapAll(ctx context.Context) (err error) {
	if err := a.endOldOverrides(ctx); err != nil {
		return err
	}
	if err := a.moveInline(ctx); err != nil {
		return err
	}
	if err := a.r.config.Store.HoldProjection(ctx, a.row); err != nil {
		return fmt.Errorf("pause the live build: %w", err)
	}
	defer a.releaseUnlessSwapped(ctx, &err, a.r.config.Store.ReleaseProjection)
	// During the hold, no tenant's appends begin to fold into the live build.
	if err := a.moveInline(ctx); err != nil {
		return err
	}
	if a.stored() {
		heads, err := a.heads(ctx)
		if err != nil {
			return err
		}
		// Do not wait for live work: the live build is paused.
		if err := a.foldUpTo(ctx, heads, a.hurried()); err != nil {
			return err
		}
		if err := a.validateTouched(ctx); err != nil {
			return err
		}
	}
	left, err := a.leftBehind(ctx)
	if err != nil {
		return err
	}
	return a.commit(func(row domain.Rebuild) error {
		err := a.r.config.Store.SwapProjection(ctx, row, left, time.Now().Add(a.r.keep(row)))
		return a.settleSwap(ctx, err)
	})
}

// swapTenants does the same for one tenant after the other. A tenant's row names its live build and holds the build's
// pause, so the argument applies to each tenant separately. If a worker is killed in between, some tenants have the new
// build, which the live runner follows. The next worker continues with the rest.
func (a *attempt) swapTenants(ctx context.Context) error {
	for _, tenant := range a.row.Tenants {
		if a.swapped[tenant] || a.isFaulted(tenant) {
			continue
		}
		if err := a.swapTenant(ctx, tenant); err != nil {
			return fmt.Errorf("tenant %s: %w", tenant, err)
		}
		a.swapped[tenant] = !a.isFaulted(tenant)
	}
	return a.commit(func(row domain.Rebuild) error {
		err := a.r.config.Store.FinishTenants(ctx, row)
		return a.settleSwap(ctx, err)
	})
}

func (a *attempt) swapTenant(ctx context.Context, tenant domain.TenantID) (err error) {
	store := a.r.config.Store
	p, err := store.Projection(ctx, a.row.ProjectionID)
	if err != nil {
		return fmt.Errorf("look up the projection: %w", err)
	}
	if err := a.followInline(ctx, p, tenant); err != nil {
		return err
	}
	if err := store.HoldTenant(ctx, tenant, a.row); err != nil {
		return fmt.Errorf("pause the live build: %w", err)
	}
	defer a.releaseUnlessSwapped(ctx, &err, func(ctx context.Context, row domain.Rebuild) error { return store.ReleaseTenant(ctx, tenant, row) })
	head, err := store.Head(ctx, tenant)
	if err != nil {
		return fmt.Errorf("read the log's head: %w", err)
	}
	if err := a.foldUpTo(ctx, []domain.Head{{Tenant: tenant, Position: head.Position}}, a.hurried()); err != nil {
		return err
	}
	if err := a.validateTouched(ctx, tenant); err != nil {
		return err
	}
	if a.isFaulted(tenant) {
		return store.ReleaseTenant(ctx, tenant, a.row)
	}
	err = store.SwapTenant(ctx, tenant, a.row)
	if err == nil || ctx.Err() != nil {
		return err
	}
	// The response may have been lost.
	if live, liveErr := store.LiveProjection(ctx, tenant, a.row.ProjectionID); liveErr == nil && live.Build == a.row.Build {
		return nil
	}
	return fmt.Errorf("swap: %w", err)
}

// commit ends the rebuild as swapped. No beat may follow it.
func (a *attempt) commit(swap func(row domain.Rebuild) error) error {
	a.work.mu.Lock()
	defer a.work.mu.Unlock()
	a.work.row.EventsDone, a.work.row.EventsTotal = a.progress.events()
	return swap(a.work.row)
}

// settleSwap finds out whether a swap happened whose response was lost.
func (a *attempt) settleSwap(ctx context.Context, swapErr error) error {
	if swapErr == nil || ctx.Err() != nil {
		return swapErr
	}
	now, err := a.r.config.Store.Rebuild(ctx, a.row.ProjectionID, a.row.ID)
	if err == nil && now.State == domain.RebuildSwapped {
		return nil
	}
	return fmt.Errorf("swap: %w", swapErr)
}

// releaseUnlessSwapped resumes the live build after a swap that did not happen, whatever the outcome of the rebuild.
func (a *attempt) releaseUnlessSwapped(ctx context.Context, failure *error, release func(context.Context, domain.Rebuild) error) {
	if *failure == nil {
		return
	}
	leaving, done := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer done()
	if err := release(leaving, a.row); err != nil && !domain.IsCode(err, domain.CodeConflict) && !domain.IsCode(err, domain.CodeNotFound) {
		*failure = errors.Join(*failure, fmt.Errorf("release the live build: %w", err))
	}
}

// endOldOverrides ends all tenant builds that override the build which a rollback brings back. The swap would put them
// in force again, although nothing has followed them meanwhile. Once there are none, none appear: such a row is only
// created while its base is live.
func (a *attempt) endOldOverrides(ctx context.Context) error {
	if a.row.RollbackOf == (domain.RebuildID{}) {
		return nil
	}
	if err := a.r.config.Store.SettleTenantBuilds(ctx, time.Now().Add(a.r.config.Keep)); err != nil {
		return fmt.Errorf("clean up ended tenant builds: %w", err)
	}
	left, err := a.r.config.Store.TenantBuildsOf(ctx, a.row.ProjectionID)
	if err != nil {
		return err
	}
	for _, b := range left {
		if b.Base == a.row.Build {
			return fmt.Errorf("tenant %s still has a separate build %d", b.Tenant, b.Build)
		}
	}
	return nil
}
