package rebuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection/folding"
)

// If the new definition cannot fold a tenant's events, or the tenant's documents do not pass, a rebuild of a shared
// projection leaves out only that tenant. The others are swapped, and the tenant keeps its build and definition.
// docs/decisions/0060-a-fault-stops-one-tenant.md explains how, and when such a rebuild still fails.

const (
	maxFaultedListed = 20   // tenants whose faults a rebuild's row names
	maxReasonBytes   = 2000 // bytes of a fault's reason
)

// tenantFailure returns a failure that concerns one tenant of the build. position is that of the failing event; 0:
// none.
func tenantFailure(build domain.Build, tenant domain.TenantID, position int64, reason string) error {
	if !build.Shared() {
		return failuref("%s", reason)
	}
	reason = folding.Cut(reason, maxReasonBytes)
	return &failure{fmt.Sprintf("tenant %s: %s", tenant, reason), &domain.TenantFault{Tenant: tenant, Reason: reason, Position: position}}
}

// unfoldable converts an event that cannot be folded to a failure of its tenant. Other errors stay as they are.
func unfoldable(build domain.Build, tenant domain.TenantID, err error) error {
	if fault, ok := errors.AsType[*folding.EventError](err); ok {
		return tenantFailure(build, tenant, fault.Event.Position, fault.Error())
	}
	return err
}

// leaveBehind records a tenant for which the rebuild cannot be swapped in, so that the rebuild continues without it. It
// returns other errors unchanged, and a failure if there are more such tenants than the rebuild may leave behind.
func (a *attempt) leaveBehind(err error) error {
	bad, ok := errors.AsType[*failure](err)
	if !ok || bad.fault == nil {
		return err
	}
	a.mu.Lock()
	a.faulted[bad.fault.Tenant] = *bad.fault
	count := len(a.faulted)
	a.mu.Unlock()

	a.work.mu.Lock()
	defer a.work.mu.Unlock()
	shown := &domain.FaultedTenants{Count: count}
	if was := a.work.row.Faulted; was != nil {
		shown.First = slices.Clone(was.First)
	}
	if len(shown.First) < maxFaultedListed {
		shown.First = append(shown.First, *bad.fault)
	}
	a.work.row.Faulted = shown
	if count <= a.row.MaxFaulted {
		return nil
	}
	if first := shown.First[0]; count > 1 {
		return failuref("%d tenants cannot be swapped, and at most %d may be left behind; the first, tenant %s: %s",
			count, a.row.MaxFaulted, first.Tenant, first.Reason)
	}
	return failuref("%s", bad.message)
}

// isFaulted reports whether the rebuild continues without a tenant.
func (a *attempt) isFaulted(tenant domain.TenantID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, faulted := a.faulted[tenant]
	return faulted
}

// requireUnfaulted fails the rebuild if every tenant with events to fold is faulted: then the definition is wrong.
func (a *attempt) requireUnfaulted() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.faulted) == 0 {
		return nil
	}
	for _, swapped := range a.swapped { // by an earlier worker that died
		if swapped {
			return nil
		}
	}
	for tenant := range a.hasEvents {
		if _, faulted := a.faulted[tenant]; !faulted {
			return nil
		}
	}
	first := slices.MinFunc(slices.Collect(maps.Values(a.faulted)), byTenant)
	if len(a.faulted) > 1 {
		return failuref("none of the %d tenants with events to fold can be swapped; the first, tenant %s: %s", len(a.faulted), first.Tenant, first.Reason)
	}
	return failuref("tenant %s: %s", first.Tenant, first.Reason)
}

func byTenant(a, b domain.TenantFault) int { return bytes.Compare(a.Tenant[:], b.Tenant[:]) }

// leftBehind returns the faulted tenants that keep their build, ordered by id. A tenant whose build has lost its table
// has nothing to keep. It gets the new build as far as that was folded, and the runner reports the event at which it
// stops.
func (a *attempt) leftBehind(ctx context.Context) ([]domain.TenantFault, error) {
	a.mu.Lock()
	faulted := slices.SortedFunc(maps.Values(a.faulted), byTenant)
	a.mu.Unlock()
	var left []domain.TenantFault
	for _, fault := range faulted {
		live, err := a.r.config.Store.LiveProjection(ctx, fault.Tenant, a.row.ProjectionID)
		if err != nil {
			return nil, fmt.Errorf("look up the live build of tenant %s: %w", fault.Tenant, err)
		}
		driver := a.r.config.Drivers[live.Definition.Database]
		if driver != nil && live.Definition.Mode != domain.ModeLive {
			if _, err := driver.Checkpoint(ctx, live.LiveBuild(), fault.Tenant); errors.Is(err, drivers.ErrNoTable) {
				continue
			}
		}
		left = append(left, fault)
	}
	return left, nil
}

// LeftBehind returns the tenants that rebuilds of a projection have left on an older build, ordered by id.
func (r *Rebuilds) LeftBehind(ctx context.Context, id domain.ProjectionID) ([]domain.TenantFault, error) {
	p, err := r.config.Store.Projection(ctx, id)
	if err != nil {
		return nil, err
	}
	rows, err := r.config.Store.TenantBuildsOf(ctx, id)
	if err != nil {
		return nil, err
	}
	var left []domain.TenantFault
	for _, b := range rows {
		if b.Fault != nil && b.PinnedTo == p.Build {
			left = append(left, *b.Fault)
		}
	}
	return left, nil
}
