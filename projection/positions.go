package projection

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/manifold-es/manifold/domain"
)

// Position is how far a projection has come for one tenant.
type Position struct {
	Projection domain.Projection // with the build that is live for the tenant
	Checkpoint int64             // the position up to which the log is folded; 0 with Unknown
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
	p, err := c.live(ctx, tenant, name)
	if isCode(err, domain.CodeNotFound) || err == nil && p.Definition.Mode == domain.ModeLive {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	position := &Position{Projection: p}
	driver, err := c.driver(p.LiveBuild())
	if err == nil {
		position.Checkpoint, err = driver.Checkpoint(ctx, p.LiveBuild(), tenant)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		position.Checkpoint, position.Unknown = 0, domain.ClientMessage(err)
		return position, nil
	}
	fault, faulted, err := c.config.Store.Fault(ctx, tenant, p.ProjectionID, p.Build)
	if err != nil {
		return nil, fmt.Errorf("the position of projection %q: %w", name, err)
	}
	position.Faulted = faulted && fault.Position > position.Checkpoint
	return position, nil
}
