package retention

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Limits of a preview.
const (
	previewWithin = 5 * time.Second
	previewEvents = 1_000_000 // that it looks at
)

// Preview says what a run would remove now, and removes nothing. It uses the category's policy, or the given policy in
// its place. If counting takes too long, the preview is not Complete. Preview returns domain.CodeNotFound if there is
// no policy and none is given.
func (r *Retention) Preview(ctx context.Context, tenant domain.TenantID, category string, given *Policy) (Preview, error) {
	work, err := r.previewInput(ctx, tenant, category, given)
	if err != nil {
		return Preview{}, err
	}
	var preview Preview
	counting, cancel := context.WithTimeout(ctx, previewWithin)
	defer cancel()
	err = r.preview(counting, tenant, &work, &preview)
	if err != nil && ctx.Err() == nil && counting.Err() != nil {
		err = nil // the count stays incomplete
	}
	return preview, err
}

func (r *Retention) previewInput(ctx context.Context, tenant domain.TenantID, category string, given *Policy) (Work, error) {
	if given == nil {
		return r.config.Store.BeginRetention(ctx, tenant, category, r.config.Grace)
	}
	if err := given.Check(); err != nil {
		return Work{}, err
	}
	before, err := r.forcedBefore(ctx, tenant, category)
	if err != nil {
		return Work{}, err
	}
	if err := r.checkForce(ctx, tenant, given.Force, before); err != nil {
		return Work{}, err
	}
	return r.config.Store.TryRetention(ctx, tenant, *given, r.config.Grace)
}

func (r *Retention) preview(ctx context.Context, tenant domain.TenantID, work *Work, preview *Preview) error {
	holds, err := r.holds(ctx, tenant, &work.Policy)
	if err != nil {
		return err
	}
	counted, err := r.counted(ctx, tenant, work, func(_ context.Context, do func() error) error { return do() })
	if err != nil {
		return err
	}
	sweepTo, compactTo := min(max(work.Aged, counted), work.Ripe), int64(0)
	if work.Compact {
		compactTo = work.Ripe
	}
	if preview.HeldBy, err = r.blockingHolds(ctx, tenant, work.Category, holds, max(sweepTo, compactTo)); err != nil {
		return err
	}
	swept, looked := lowest(holds, sweepTo), 0
	for _, stage := range []struct {
		reason   Reason
		from, to int64
		before   int64
	}{
		{ReasonSweep, work.SweptTo, swept, 0},
		{ReasonCompact, max(work.CompactedTo, work.SweptTo, swept), lowest(holds, compactTo), swept},
		{ReasonSuperseded, max(work.CompactedTo, work.SweptTo, swept, lowest(holds, compactTo)), compactTo, swept},
	} {
		for from := stage.from; from < stage.to; {
			if looked += r.config.Slice; looked > previewEvents {
				return nil
			}
			slice, err := r.config.Store.FindRetained(ctx, tenant, Step{
				Policy: work.Policy, Reason: stage.reason, After: from, UpTo: stage.to, Limit: r.config.Slice, SweptTo: stage.before,
				Ripe: compactTo, Below: lowest(holds, max(work.CompactedTo, work.SweptTo)),
			})
			if err != nil {
				return err
			}
			preview.Events += slice.Found
			if from = slice.Seen; slice.Done {
				break
			}
		}
	}
	preview.Complete = true
	return nil
}
