package projection

import (
	"context"
	"fmt"

	"github.com/manifold-es/manifold/domain"
)

// projectionForFaults returns the projection with this name whose faults are to be handled: a tenant's own projection,
// or its part of a shared one.
func (c *Catalog) projectionForFaults(ctx context.Context, tenant domain.TenantID, name string) (domain.Projection, error) {
	if tenant == domain.Everyone {
		return domain.Projection{}, domain.Errorf(domain.CodeInvalidRequest, "query tenant", "required: the tenant's id")
	}
	return c.Live(ctx, tenant, name)
}

// Retry requests another attempt at the event before which the projection has stopped for the tenant, in whichever
// process follows it. It returns the status, which may not show the outcome yet. It does nothing if the projection has
// not stopped.
func (c *Catalog) Retry(ctx context.Context, tenant domain.TenantID, name string) (Status, error) {
	p, err := c.projectionForFaults(ctx, tenant, name)
	if err != nil {
		return Status{}, err
	}
	if err := c.config.Store.RetryFault(ctx, tenant, p.ProjectionID, p.Build); err != nil {
		return Status{}, err
	}
	return c.Status(ctx, tenant, name)
}

// Skip makes the projection skip the event before which it has stopped for the tenant, or because of which a rebuild
// has left the tenant on its old build. The skip applies to every build until WithdrawSkip. The error is
// domain.CodeConflict if the projection has not stopped before exactly that position. by is the author and reason the
// reason, as in ProjectionVersion.By.
func (c *Catalog) Skip(ctx context.Context, tenant domain.TenantID, name string, position int64, reason, by string) (domain.SkippedEvent, error) {
	p, err := c.projectionForFaults(ctx, tenant, name)
	if err != nil {
		return domain.SkippedEvent{}, err
	}
	skip := domain.SkippedEvent{ProjectionID: p.ProjectionID, Tenant: tenant, Version: p.Version, Position: position, Reason: reason, By: by}
	if p.Fault != nil && p.Fault.Position == position {
		return c.skipLeftBehind(ctx, p, skip)
	}
	if p.Definition.Mode == domain.ModeLive {
		return c.skipLive(ctx, p, skip)
	}
	driver, err := c.driver(p.LiveBuild())
	if err != nil {
		return domain.SkippedEvent{}, err
	}
	checkpoint, err := driver.Checkpoint(ctx, p.LiveBuild(), tenant)
	if err != nil {
		return domain.SkippedEvent{}, fmt.Errorf("skip an event of projection %q: %w", name, err)
	}
	if checkpoint >= position {
		return domain.SkippedEvent{}, domain.Errorf(domain.CodeConflict, "position", "projection %q has passed the event at position %d already", name, position)
	}
	return c.config.Store.SkipEvent(ctx, skip, p.Build)
}

// skipLeftBehind is Skip for the event because of which a rebuild has left the tenant on its old build. That build has
// folded the event; the next one skips it.
func (c *Catalog) skipLeftBehind(ctx context.Context, p domain.Projection, skip domain.SkippedEvent) (domain.SkippedEvent, error) {
	events, err := c.config.Store.ReadLog(ctx, skip.Tenant, domain.LogQuery{From: skip.Position, To: skip.Position, Limit: 1})
	if err != nil {
		return domain.SkippedEvent{}, fmt.Errorf("skip an event of projection %q: %w", p.Name, err)
	}
	if len(events) == 0 {
		return domain.SkippedEvent{}, domain.Errorf(domain.CodeConflict, "position", "the event at position %d is gone", skip.Position)
	}
	skip.EventID, skip.Message = events[0].ID, p.Fault.Reason
	return c.config.Store.PutSkipped(ctx, skip)
}

// WithdrawSkip ends a skip of an event for the tenant. It applies to later builds, and to the live one if that has not
// reached the event yet. The error is domain.CodeNotFound if the event is not skipped.
func (c *Catalog) WithdrawSkip(ctx context.Context, tenant domain.TenantID, name string, position int64) error {
	p, err := c.projectionForFaults(ctx, tenant, name)
	if err != nil {
		return err
	}
	return c.config.Store.WithdrawSkip(ctx, tenant, p.ProjectionID, position)
}

// maxSkippedListed limits how many skipped events are listed.
const maxSkippedListed = 1000

// Skipped returns the first skipped events of the projection for the tenant, for all versions of its definition, by
// position.
func (c *Catalog) Skipped(ctx context.Context, tenant domain.TenantID, name string) ([]domain.SkippedEvent, error) {
	p, err := c.projectionForFaults(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	return c.config.Store.SkippedEvents(ctx, tenant, p.ProjectionID, maxSkippedListed)
}
