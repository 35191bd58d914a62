package projection

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// RetentionHolds returns the projections that still have to read events of a tenant's category, each with how far its live
// build has come, as that is stored: the tenant's own and the shared ones. One that is live stores nothing, and needs all
// events whenever somebody asks. One whose checkpoint cannot be read has a Problem. A build that is kept for a rollback holds
// nothing.
func (c *Catalog) RetentionHolds(ctx context.Context, tenant domain.TenantID, category string) ([]domain.RetentionHold, error) {
	own, err := c.config.Store.Projections(ctx, tenant)
	if err != nil {
		return nil, err
	}
	// A shared one that is hidden by the tenant's own is followed as well.
	shared, err := c.config.Store.Projections(ctx, domain.Everyone)
	if err != nil {
		return nil, err
	}
	var holds []domain.RetentionHold
	var failures []error
	var mu sync.Mutex
	var asking sync.WaitGroup
	turn := make(chan struct{}, positionsAtOnce)
	for _, p := range slices.Concat(own, shared) {
		turn <- struct{}{}
		asking.Go(func() {
			hold, ok, err := c.retentionHold(ctx, tenant, p.ProjectionID, category)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failures = append(failures, err)
			case ok:
				holds = append(holds, hold)
			}
			<-turn
		})
	}
	asking.Wait()
	return holds, errors.Join(failures...)
}

// retentionHold says how far a projection holds a category's events for a tenant; ok is false where it holds none.
func (c *Catalog) retentionHold(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, category string) (hold domain.RetentionHold, ok bool, err error) {
	hold = domain.RetentionHold{Kind: domain.HoldProjection, Name: id.Name}
	var last int64
	for {
		// By the definition that is live for the tenant, which may have another source.
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
			wants, head, err := c.wantsAny(ctx, tenant, p, category, checkpoint)
			if err != nil || wants || checkpoint >= head {
				return hold, wants, err
			}
			passed, err := c.passOver(ctx, tenant, p, checkpoint, head)
			return hold, !passed, err
		case ctx.Err() != nil:
			return hold, false, err
		case errors.Is(err, drivers.ErrNoTable) && p.Build != last:
			last = p.Build // another build may have gone live and this one been dropped in between
		default:
			hold.Problem = c.unreadable(p, err)
			return hold, true, nil
		}
	}
}

// wantsAny reports whether the log has an event of the category behind a checkpoint, up to the head that it returns, that the
// projection folds. A checkpoint that nothing was folded behind is not saved for its own sake.
func (c *Catalog) wantsAny(ctx context.Context, tenant domain.TenantID, p domain.Projection, category string, checkpoint int64) (wants bool, to int64, err error) {
	head, err := c.config.Store.Head(ctx, tenant)
	if err != nil || checkpoint >= head.Position {
		return false, head.Position, err
	}
	wants, err = c.config.Store.AnyEvent(ctx, tenant, domain.Source{Categories: []string{category}}, c.types(p.Definition), checkpoint, head.Position)
	return wants, head.Position, err
}

// passOver saves the checkpoint of a build at the head, where the projection folds nothing of what lies between: else nobody could
// tell later, when that is gone, that it has missed nothing. It reports false where it cannot be saved now.
func (c *Catalog) passOver(ctx context.Context, tenant domain.TenantID, p domain.Projection, checkpoint, head int64) (bool, error) {
	switch {
	case p.Inline:
		return true, nil // the appends have folded all that there is
	case p.HeldBy != "":
		return false, nil // it is about to be swapped
	}
	wants, err := c.config.Store.AnyEvent(ctx, tenant, p.Definition.Source, c.types(p.Definition), checkpoint, head)
	if err != nil || wants {
		return false, err // it is still to fold events of another category
	}
	driver, err := c.driver(p.LiveBuild())
	if err == nil {
		err = driver.Save(ctx, p.LiveBuild(), tenant, drivers.Batch{From: checkpoint, To: head})
	}
	if errors.Is(err, drivers.ErrStale) || errors.Is(err, drivers.ErrNoTable) {
		return false, nil // somebody else has saved, or dropped it: the next run asks again
	}
	return err == nil, err
}
