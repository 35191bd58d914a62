package rebuild

import (
	"context"
	"fmt"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

// checkParked refuses a build that has parked a document which the live build folds: a rebuild must not add faults.
// Documents that the live build has parked as well, or has not reached, are no reason.
func (c *comparison) checkParked(ctx context.Context) error {
	if c.row.Definition.OnError != domain.OnErrorPark {
		return nil // it would have stopped
	}
	parked, err := c.r.config.Store.ParkedDocuments(ctx, c.tenant, c.row.ProjectionID, c.row.Build, "", projection.MaxParked)
	if err != nil || len(parked) == 0 {
		return err
	}
	// The live build keeps what it sets aside before its checkpoint passes it. So the next read includes everything up
	// to this position.
	at, err := c.liveAt(ctx)
	if err != nil {
		return err
	}
	live, err := c.r.config.Store.ParkedDocuments(ctx, c.tenant, c.row.ProjectionID, c.live.Number, "", projection.MaxParked)
	if err != nil {
		return err
	}
	known := make(map[string]bool, len(live))
	for _, p := range live {
		known[p.ID] = true
	}
	for _, p := range parked {
		if known[p.ID] || p.Position > at {
			continue
		}
		reason := fmt.Sprintf("document %q is parked by event %d (%s of %s), which the live build folds: %s: %s", p.ID, p.Position, p.EventType, p.Stream, p.Where, p.Message)
		return tenantFailure(c.build, c.tenant, p.Position, reason)
	}
	return nil
}
