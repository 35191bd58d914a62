package rebuild

import (
	"context"
	"fmt"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

// lookAtParked refuses a build that has parked a document which the live build folds: a rebuild brings no new faults. What
// the live build has parked as well, or has not come to, was there before.
func (c *comparison) lookAtParked(ctx context.Context) error {
	if c.row.Definition.OnError != domain.OnErrorPark {
		return nil // it would have stopped
	}
	parked, err := c.r.config.Store.ParkedDocuments(ctx, c.tenant, c.row.ProjectionID, c.row.Build, "", projection.MaxParked)
	if err != nil || len(parked) == 0 {
		return err
	}
	live, err := c.r.config.Store.ParkedDocuments(ctx, c.tenant, c.row.ProjectionID, c.liveBuild.Number, "", projection.MaxParked)
	if err != nil {
		return err
	}
	known := make(map[string]bool, len(live))
	for _, p := range live {
		known[p.ID] = true
	}
	at, err := c.liveAt(ctx)
	if err != nil {
		return err
	}
	for _, p := range parked {
		if known[p.ID] || p.Position > at {
			continue
		}
		text := fmt.Sprintf("document %q is parked by event %d (%s of %s), which the live build folds: %s: %s", p.ID, p.Position, p.EventType, p.Stream, p.Where, p.Message)
		if c.build.Shared() {
			text = fmt.Sprintf("tenant %s: %s", c.tenant, text)
		}
		return failed("%s", text)
	}
	return nil
}
