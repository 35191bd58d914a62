package rebuild

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// swap puts the new build in the live one's place, in the way that the projection's mode and the rebuild ask for.
func (a *attempt) swap(ctx context.Context) error {
	if len(a.row.Tenants) > 0 {
		return a.swapTenants(ctx)
	}
	return a.swapAll(ctx)
}

// swapAll holds the live build still, passes every head that it can still have saved, and swaps, for all tenants at once.
//
// A live worker saves only what it has read in a reading that showed no hold; such a reading took the log's head before
// it looked at the projection's row, so it came before the hold, and the heads that are read here, after the hold was
// placed, are at or above everything in it. So the new build is never behind what readers have seen of the old one.
// docs/decisions/0002-swap-by-hold.md has the whole argument.
func (a *attempt) swapAll(ctx context.Context) (err error) {
	if err := a.endOldOverrides(ctx); err != nil {
		return err
	}
	if err := a.moveInline(ctx); err != nil {
		return err
	}
	if err := a.r.config.Store.HoldProjection(ctx, a.row); err != nil {
		return fmt.Errorf("hold the live build still: %w", err)
	}
	defer a.letGo(ctx, &err, a.r.config.Store.ReleaseProjection)
	// While it is held, no tenant's appends begin to fold into it.
	if err := a.moveInline(ctx); err != nil {
		return err
	}
	if a.stored() {
		heads, err := a.heads(ctx)
		if err != nil {
			return err
		}
		// Nobody is waited for: the live build stands still.
		if err := a.pass(ctx, a.r.config.Store, heads); err != nil {
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

// swapTenants does the same for one tenant after the other. A tenant's row says which build is live for it, and holds it
// still: so the argument holds for each tenant by itself. A worker that is killed in between leaves some of them with the
// new build, which the live runner follows, and the next one goes on with the rest.
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
		return fmt.Errorf("look the projection up: %w", err)
	}
	if err := a.followInline(ctx, p, tenant); err != nil {
		return err
	}
	if err := store.HoldTenant(ctx, tenant, a.row); err != nil {
		return fmt.Errorf("hold the live build still: %w", err)
	}
	defer a.letGo(ctx, &err, func(ctx context.Context, row domain.Rebuild) error { return store.ReleaseTenant(ctx, tenant, row) })
	head, err := store.Head(ctx, tenant)
	if err != nil {
		return fmt.Errorf("read the log's head: %w", err)
	}
	if err := a.pass(ctx, store, []domain.Head{{Tenant: tenant, Position: head.Position}}); err != nil {
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
	// The answer may be lost.
	if live, liveErr := store.LiveProjection(ctx, tenant, a.row.ProjectionID); liveErr == nil && live.Build == a.row.Build {
		return nil
	}
	return fmt.Errorf("swap: %w", err)
}

// commit ends the rebuild as swapped. No beat may come behind that.
func (a *attempt) commit(swap func(row domain.Rebuild) error) error {
	a.work.mu.Lock()
	defer a.work.mu.Unlock()
	a.work.row.EventsDone, a.work.row.EventsTotal = a.progress.events()
	return swap(a.work.row)
}

// settleSwap finds out whether a swap whose answer was lost has happened.
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

// letGo lets the live build go on where a swap did not happen, whatever comes of the rebuild.
func (a *attempt) letGo(ctx context.Context, failure *error, release func(context.Context, domain.Rebuild) error) {
	if *failure == nil {
		return
	}
	leaving, done := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer done()
	if err := release(leaving, a.row); err != nil && !domain.IsCode(err, domain.CodeConflict) && !domain.IsCode(err, domain.CodeNotFound) {
		*failure = errors.Join(*failure, fmt.Errorf("let go of the live build: %w", err))
	}
}

// endOldOverrides sees to it that no tenant's build of its own stands in for the build that a rollback brings back: it would
// be in force again by the swap, and was followed by nobody meanwhile. There is none, once there is none: such a row is only
// made while its base is live.
func (a *attempt) endOldOverrides(ctx context.Context) error {
	if a.row.RollbackOf == (domain.RebuildID{}) {
		return nil
	}
	if err := a.r.config.Store.SettleTenantBuilds(ctx, time.Now().Add(a.r.config.Keep)); err != nil {
		return fmt.Errorf("clear up tenants' builds that have ended: %w", err)
	}
	left, err := a.r.config.Store.TenantBuildsOf(ctx, a.row.ProjectionID)
	if err != nil {
		return err
	}
	for _, b := range left {
		if b.Base == a.row.Build {
			return fmt.Errorf("tenant %s still has build %d of its own, of before", b.Tenant, b.Build)
		}
	}
	return nil
}
