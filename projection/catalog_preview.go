package projection

import (
	"context"
	"slices"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/upcasting"
)

// PreviewQuery asks to try out a definition. Exactly one of Stream, Last and Given selects the events.
type PreviewQuery struct {
	Definition domain.Definition
	Stream     string               // a stream's first events, up to MaxPreviewEvents
	Last       int                  // the last events that the definition folds: how many, 1 to MaxPreviewEvents
	Given      []folding.GivenEvent // events that need not be in the log, 1 to MaxPreviewEvents
}

// Preview folds events of the tenant's log, or given ones, with a definition that need not belong to a projection. It
// stores nothing. It refuses a definition that does not compile as Check does, and a preview beyond its limits with
// domain.CodeTooLarge or domain.CodeTooCostly. domain.Everyone can only use given events.
func (c *Catalog) Preview(ctx context.Context, tenant domain.TenantID, q PreviewQuery) (preview folding.Preview, err error) {
	definition, err := c.Complete(ctx, tenant, q.Definition)
	if err != nil {
		return folding.Preview{}, domain.Within("definition", err)
	}
	definition = folding.WithDefaults(definition)
	if definition.Name == "" {
		definition.Name = "preview"
	}
	ctx, end, err := c.config.Requests.Begin(ctx, tenant, "try it on fewer events")
	if err != nil {
		return folding.Preview{}, err
	}
	defer end()
	defer func() { err = budget.Cause(ctx, err) }()
	fold, err := c.check(ctx, domain.ProjectionID{Owner: tenant, Name: definition.Name}, definition)
	if err != nil {
		return folding.Preview{}, domain.Within("definition", err)
	}
	events, err := c.previewEvents(ctx, tenant, fold, q)
	if err != nil {
		return folding.Preview{}, err
	}
	var upcasters *upcasting.Set
	if c.config.Upcasters != nil {
		if upcasters, err = c.config.Upcasters.Now(ctx, tenant); err != nil {
			return folding.Preview{}, err
		}
	}
	return fold.Try(ctx, events, upcasters)
}

func (c *Catalog) previewEvents(ctx context.Context, tenant domain.TenantID, fold *folding.Fold, q PreviewQuery) ([]domain.Event, error) {
	if tenant == domain.Everyone && len(q.Given) == 0 {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "source", "the operator has no log; give the events")
	}
	switch {
	case q.Stream != "":
		if err := domain.CheckStream("source.stream", q.Stream); err != nil {
			return nil, err
		}
		events, err := c.config.Store.ReadStream(ctx, tenant, q.Stream, domain.StreamQuery{From: 1, Limit: folding.MaxPreviewEvents, MaxBytes: folding.MaxPreviewBytes})
		if err == nil && len(events) == 0 {
			err = domain.Errorf(domain.CodeNotFound, "source.stream", "there is no stream %q", folding.Clip(q.Stream))
		}
		return domain.WithData(events), err
	case q.Last != 0:
		if q.Last < 1 || q.Last > folding.MaxPreviewEvents {
			return nil, domain.Errorf(domain.CodeInvalidRequest, "source.last", "%d events were asked for; ask for 1 to %d", q.Last, folding.MaxPreviewEvents)
		}
		events, err := c.config.Store.ReadLog(ctx, tenant, domain.LogQuery{
			Limit: q.Last, MaxBytes: folding.MaxPreviewBytes, Direction: domain.Backward,
			Categories: fold.Definition().Source.Categories, Types: fold.Types(),
		})
		slices.Reverse(events)
		return domain.WithData(events), err
	}
	return folding.GivenEvents("source.events", q.Given)
}
