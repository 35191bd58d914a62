package projection

import (
	"context"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/projection/folding"
)

// Replayed is the result of folding the events that wait for parked documents.
type Replayed struct {
	Documents   int64 // no longer parked
	Events      int64 // have taken effect
	StillParked int64 // documents whose events could not all be folded
}

// Parked returns a page of the documents that the projection has parked for the tenant, by id: the first limit
// documents after the id after (empty: from the start).
func (c *Catalog) Parked(ctx context.Context, tenant domain.TenantID, name, after string, limit int) ([]domain.ParkedDocument, error) {
	p, err := c.projectionForFaults(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	return c.config.Store.ParkedDocuments(ctx, tenant, p.ProjectionID, p.Build, after, limit)
}

// ReplayParked folds a parked document's waiting events into it. If all of them can be folded, the document is no
// longer parked. The error is domain.CodeNotFound if it is not parked.
func (c *Catalog) ReplayParked(ctx context.Context, tenant domain.TenantID, name, document string) (Replayed, error) {
	u, err := c.newParkedReplay(ctx, tenant, name)
	if err != nil {
		return Replayed{}, err
	}
	_, parked, err := c.config.Store.ParkedDocument(ctx, tenant, u.id, u.build.Number, document)
	if err != nil {
		return Replayed{}, err
	}
	if !parked {
		return Replayed{}, domain.Errorf(domain.CodeNotFound, "documentId", "projection %q has no parked document %q", name, folding.Clip(document))
	}
	var sum Replayed
	err = u.replay(ctx, document, &sum)
	return sum, err
}

// ReplayAllParked is ReplayParked for all of the tenant's parked documents, ordered by id.
func (c *Catalog) ReplayAllParked(ctx context.Context, tenant domain.TenantID, name string) (Replayed, error) {
	var sum Replayed
	u, err := c.newParkedReplay(ctx, tenant, name)
	if err != nil {
		return sum, err
	}
	for after := ""; ; {
		documents, err := c.config.Store.ParkedDocuments(ctx, tenant, u.id, u.build.Number, after, 100)
		if err != nil || len(documents) == 0 {
			return sum, err
		}
		for _, document := range documents {
			after = document.ID
			if err := u.replay(ctx, document.ID, &sum); err != nil {
				return sum, err
			}
		}
	}
}

// DiscardParked gives up the events that wait for a parked document. Each becomes a skipped event, as by Skip, but only
// for this document if it belongs to others, too. The document continues with its next event. The error is
// domain.CodeNotFound if the document is not parked.
func (c *Catalog) DiscardParked(ctx context.Context, tenant domain.TenantID, name, document, by string) error {
	u, err := c.newParkedReplay(ctx, tenant, name)
	if err != nil {
		return err
	}
	skip := domain.SkippedEvent{ProjectionID: u.id, Tenant: tenant, Version: u.version, Reason: "discarded with the parked document " + folding.Cut(document, folding.MaxShown), By: by}
	var whole []int64
	if u.fold.Spreads() {
		skip.Documents = []string{document}
		if whole, err = u.waitingAlone(ctx, document); err != nil {
			return err
		}
	}
	// A replay may have saved the document and then stopped: keep what it has folded.
	was, err := u.load(ctx, document)
	if err != nil {
		return err
	}
	return c.config.Store.DiscardParked(ctx, skip, u.build.Number, document, was.version, whole)
}

// waitingAlone returns the positions of the events that wait for a document and belong to no other.
func (u *parkedReplay) waitingAlone(ctx context.Context, document string) (alone []int64, err error) {
	meter := expr.MeterOf(ctx)
	for after := int64(0); ; {
		events, err := u.store.ParkedEvents(ctx, u.tenant, u.id, u.build.Number, document, after, parkedPage)
		if err != nil || len(events) == 0 {
			return alone, err
		}
		for i := range events {
			after = events[i].Position
			if document == domain.ParkedEventID(events[i].ID) { // it waits by itself, since its keys cannot be computed
				alone = append(alone, after)
				continue
			}
			if folding.Upcast(meter, u.upcasters, &events[i]) != nil {
				continue
			}
			event := folding.NewEvent(&events[i], meter)
			if targets, fault := u.fold.Targets(nil, &event); fault == nil && len(targets) == 1 {
				alone = append(alone, after)
			}
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}
