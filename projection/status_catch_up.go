package projection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// CatchUp waits until the projection has folded, for the tenant, every event of its source up to the log's current
// head. It then returns the projection's status. wait is the longest time to wait; 0: DefaultWait. Live and inline
// projections are always caught up.
//
// The error is domain.CodeNotCaughtUp if the projection did not get there in time, and domain.CodeFaulted if it cannot.
func (c *Catalog) CatchUp(ctx context.Context, tenant domain.TenantID, name string, wait time.Duration) (Status, error) {
	p, err := c.Live(ctx, tenant, name)
	if err != nil {
		return Status{}, err
	}
	head, err := c.config.Store.Head(ctx, tenant)
	if err != nil {
		return Status{}, fmt.Errorf("catch up with the head: %w", err)
	}
	if head.Position > 0 && p.Definition.Mode != domain.ModeLive {
		p, err = c.awaitPosition(ctx, tenant, p, Freshness{MinPosition: head.Position, Wait: wait})
	}
	switch {
	case domain.IsCode(err, domain.CodeNotCaughtUp):
		return Status{}, domain.Errorf(domain.CodeNotCaughtUp, "timeout",
			"projection %q did not reach the log's head, position %d, in time; try again, or read its state", name, head.Position)
	case errors.Is(err, drivers.ErrNoTable):
		return Status{}, c.noTable(p)
	case err != nil:
		return Status{}, err
	}
	return c.Status(ctx, tenant, name)
}
