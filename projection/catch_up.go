package projection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// CatchUp waits until the projection has folded, for the tenant, every event of its source up to the head that the log has
// now, and returns how it is doing then. wait is the longest that it takes; 0: DefaultWait. A live projection, and one whose
// documents are made by the appends themselves, is always there.
//
// domain.CodeNotCaughtUp: it has not got there in time. domain.CodeFaulted: it cannot get there.
func (c *Catalog) CatchUp(ctx context.Context, tenant domain.TenantID, name string, wait time.Duration) (Status, error) {
	p, err := c.live(ctx, tenant, name)
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
			"projection %q has not reached position %d in that time, which is where the log's head was; try again, or look at its state", name, head.Position)
	case errors.Is(err, drivers.ErrNoTable):
		return Status{}, c.noTable(p)
	case err != nil:
		return Status{}, err
	}
	return c.Status(ctx, tenant, name)
}
