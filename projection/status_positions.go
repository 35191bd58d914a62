package projection

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// Position is how far a projection has come for one tenant.
type Position struct {
	Projection domain.Projection // with the build that is live for the tenant
	Checkpoint int64             // the position up to which nothing is left to fold; 0 with Unknown
	Unknown    string            // why the checkpoint is unknown, for people; empty: it is known
	Faulted    bool              // it has stopped before an event that cannot be folded
}

// maxConcurrentReads limits how many projections are read at the same time, so that one request does not take all
// connections.
const maxConcurrentReads = 4

// Positions returns how far the tenant's projections have come, in the order of List. It omits live ones, which store
// nothing that could lag. It counts no events, so its cost does not depend on the lag.
func (c *Catalog) Positions(ctx context.Context, tenant domain.TenantID) ([]Position, error) {
	list, err := c.List(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range list {
		if p.Definition.Mode != domain.ModeLive {
			names = append(names, p.Name)
		}
	}
	found := make([]*Position, len(names))
	var reads errgroup.Group
	reads.SetLimit(maxConcurrentReads)
	for i, name := range names {
		reads.Go(func() (err error) {
			found[i], err = c.position(ctx, tenant, name)
			return err
		})
	}
	if err := reads.Wait(); err != nil {
		return nil, err
	}
	var all []Position
	for _, p := range found {
		if p != nil {
			all = append(all, *p)
		}
	}
	return all, nil
}

// position returns nil if the projection was removed meanwhile, or became live.
func (c *Catalog) position(ctx context.Context, tenant domain.TenantID, name string) (*Position, error) {
	var last int64
	for {
		p, err := c.Live(ctx, tenant, name)
		if domain.IsCode(err, domain.CodeNotFound) || err == nil && p.Definition.Mode == domain.ModeLive {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		checkpoint, err := c.checkpoint(ctx, tenant, p)
		switch {
		case err == nil:
			fault, faulted, err := c.config.Store.Fault(ctx, tenant, p.ProjectionID, p.Build)
			if err != nil {
				return nil, fmt.Errorf("the position of projection %q: %w", name, err)
			}
			position := &Position{Projection: p, Checkpoint: checkpoint, Faulted: faulted && fault.Position > checkpoint}
			head, err := c.config.Store.Head(ctx, tenant)
			if err != nil {
				return nil, err
			}
			position.Checkpoint, _, err = c.progress(ctx, tenant, p, checkpoint, head.Position)
			return position, err
		case ctx.Err() != nil:
			return nil, err
		case errors.Is(err, drivers.ErrNoTable) && p.Build != last:
			last = p.Build // another build may have gone live since, and this one been dropped
		default:
			return &Position{Projection: p, Unknown: c.unreadable(p, err)}, nil
		}
	}
}

// checkpoint returns how far the projection's live build has come for the tenant. Its errors are those of the
// documents' database.
func (c *Catalog) checkpoint(ctx context.Context, tenant domain.TenantID, p domain.Projection) (int64, error) {
	driver, err := c.driver(p.LiveBuild())
	if err != nil {
		return 0, err
	}
	return driver.Checkpoint(ctx, p.LiveBuild(), tenant)
}
