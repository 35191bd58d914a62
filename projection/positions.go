package projection

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// Position is how far a projection has come for one tenant.
type Position struct {
	Projection domain.Projection // with the build that is live for the tenant
	Checkpoint int64             // the position up to which nothing is left to fold; 0 with Unknown
	Unknown    string            // why the checkpoint cannot be told, for people; empty: it can
	Faulted    bool              // it stands still before an event that cannot be folded
}

// positionsAtOnce is how many projections are asked at the same time, so that one request does not take all connections.
const positionsAtOnce = 4

// Positions says how far the projections are for the tenant that List gives, in its order. Live ones are left out: they keep
// nothing that could be behind. It counts no events, so that it costs the same however far behind they are.
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
	found, failures := make([]*Position, len(names)), make([]error, len(names))
	var asking sync.WaitGroup
	turn := make(chan struct{}, positionsAtOnce)
	for i, name := range names {
		turn <- struct{}{}
		asking.Go(func() {
			found[i], failures[i] = c.position(ctx, tenant, name)
			<-turn
		})
	}
	asking.Wait()
	if err := errors.Join(failures...); err != nil {
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

// position returns nil where the projection was removed meanwhile, or became a live one.
func (c *Catalog) position(ctx context.Context, tenant domain.TenantID, name string) (*Position, error) {
	var last int64
	for {
		p, err := c.live(ctx, tenant, name)
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
			last = p.Build // another build may have gone live and this one been dropped in between
		default:
			return &Position{Projection: p, Unknown: c.unreadable(p, err)}, nil
		}
	}
}

// checkpoint is how far a projection has come with the build that is live for the tenant. Its errors are the database's that
// keeps the documents.
func (c *Catalog) checkpoint(ctx context.Context, tenant domain.TenantID, p domain.Projection) (int64, error) {
	driver, err := c.driver(p.LiveBuild())
	if err != nil {
		return 0, err
	}
	return driver.Checkpoint(ctx, p.LiveBuild(), tenant)
}
