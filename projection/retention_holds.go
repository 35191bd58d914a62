package projection

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// RetentionHolds returns the projections, the tenant's own and the shared ones, that still have to read events of the
// tenant's category. Each comes with the stored checkpoint of its live build. A live projection stores nothing, and
// needs all events for each request. A projection whose checkpoint cannot be read has a Problem. A build that is kept
// for a rollback holds no events.
func (c *Catalog) RetentionHolds(ctx context.Context, tenant domain.TenantID, category string) ([]domain.RetentionHold, error) {
	own, err := c.config.Store.Projections(ctx, tenant)
	if err != nil {
		return nil, err
	}
	// Shared projections that the tenant's own hide are followed as well.
	shared, err := c.config.Store.Projections(ctx, domain.Everyone)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var holds []domain.RetentionHold
	var reads errgroup.Group
	reads.SetLimit(maxConcurrentReads)
	for _, p := range slices.Concat(own, shared) {
		reads.Go(func() error {
			hold, ok, err := c.retentionHold(ctx, tenant, p.ProjectionID, category)
			if err == nil && ok {
				mu.Lock()
				defer mu.Unlock()
				holds = append(holds, hold)
			}
			return err
		})
	}
	err = reads.Wait()
	return holds, err
}

// retentionHold returns how far a projection holds a category's events for a tenant; ok is false if it holds none.
func (c *Catalog) retentionHold(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, category string) (hold domain.RetentionHold, ok bool, err error) {
	hold = domain.RetentionHold{Kind: domain.HoldProjection, Name: id.Name}
	var last int64
	for {
		// Use the definition that is live for the tenant, which may have another source.
		p, err := c.config.Store.LiveProjection(ctx, tenant, id)
		if domain.IsCode(err, domain.CodeNotFound) {
			return hold, false, nil
		}
		if err != nil {
			return hold, false, err
		}
		if categories := p.Definition.Source.Categories; len(categories) > 0 && !slices.Contains(categories, category) {
			return hold, false, nil
		}
		if p.Definition.Mode == domain.ModeLive {
			return hold, true, nil
		}
		checkpoint, err := c.checkpoint(ctx, tenant, p)
		switch {
		case err == nil:
			hold.Position = checkpoint
			wants, head, err := c.hasUnfolded(ctx, tenant, p, category, checkpoint)
			if err != nil || wants || checkpoint >= head {
				return hold, wants, err
			}
			passed, err := c.saveAtHead(ctx, tenant, p, checkpoint, head)
			return hold, !passed, err
		case ctx.Err() != nil:
			return hold, false, err
		case errors.Is(err, drivers.ErrNoTable) && p.Build != last:
			last = p.Build // another build may have gone live since, and this one been dropped
		default:
			hold.Problem = c.unreadable(p, err)
			return hold, true, nil
		}
	}
}

// hasUnfolded reports whether the log has an event of the category after the checkpoint that the projection folds. It
// looks up to the head, and returns the head. The look is necessary because a checkpoint is not saved if no event was
// folded since the previous one.
func (c *Catalog) hasUnfolded(ctx context.Context, tenant domain.TenantID, p domain.Projection, category string, checkpoint int64) (wants bool, to int64, err error) {
	head, err := c.config.Store.Head(ctx, tenant)
	if err != nil || checkpoint >= head.Position {
		return false, head.Position, err
	}
	wants, err = c.config.Store.AnyEvent(ctx, tenant, domain.Source{Categories: []string{category}}, c.types(p.Definition), checkpoint, head.Position)
	return wants, head.Position, err
}

// saveAtHead saves a build's checkpoint at the head if the projection folds no event in between. Otherwise, once those
// events are gone, nothing would show that the build has missed none. It returns false if the checkpoint cannot be
// saved now.
func (c *Catalog) saveAtHead(ctx context.Context, tenant domain.TenantID, p domain.Projection, checkpoint, head int64) (bool, error) {
	switch {
	case p.Inline:
		return true, nil // the appends have folded everything
	case p.HeldBy != "":
		return false, nil // it is about to be swapped
	}
	wants, err := c.config.Store.AnyEvent(ctx, tenant, p.Definition.Source, c.types(p.Definition), checkpoint, head)
	if err != nil || wants {
		return false, err // events of another category are still to be folded
	}
	driver, err := c.driver(p.LiveBuild())
	if err == nil {
		err = driver.Save(ctx, p.LiveBuild(), tenant, drivers.Batch{From: checkpoint, To: head})
	}
	if errors.Is(err, drivers.ErrStale) || errors.Is(err, drivers.ErrNoTable) {
		return false, nil // another process has saved, or dropped the build: the next run checks again
	}
	return err == nil, err
}
