package projection

import (
	"context"

	"github.com/manifold-es/manifold/domain"
)

// Replayed is what came of folding what waits for parked documents.
type Replayed struct {
	Documents   int64 // that are parked no more
	Events      int64 // that took effect
	StillParked int64 // documents that could not be folded again, or not to their end
}

// Parked returns a page of the documents that the projection has parked for the tenant: the first limit behind the id after
// (empty: from the first), by id.
func (c *Catalog) Parked(ctx context.Context, tenant domain.TenantID, name, after string, limit int) ([]domain.ParkedDocument, error) {
	p, err := c.standing(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	return c.config.Store.ParkedDocuments(ctx, tenant, p.ProjectionID, p.Build, after, limit)
}

// ReplayParked folds what waits for a parked document onto it. Where all of it can be folded the document is parked no
// more. domain.CodeNotFound where it is not parked.
func (c *Catalog) ReplayParked(ctx context.Context, tenant domain.TenantID, name, document string) (Replayed, error) {
	u, err := c.unparking(ctx, tenant, name)
	if err != nil {
		return Replayed{}, err
	}
	_, parked, err := c.config.Store.ParkedDocument(ctx, tenant, u.id, u.build.Number, document)
	if err != nil {
		return Replayed{}, err
	}
	if !parked {
		return Replayed{}, domain.Errorf(domain.CodeNotFound, "documentId", "projection %q has no parked document %q", name, clip(document))
	}
	var sum Replayed
	err = u.replay(ctx, document, &sum)
	return sum, err
}

// ReplayAllParked is ReplayParked for all documents that are parked for the tenant, in the order of their ids.
func (c *Catalog) ReplayAllParked(ctx context.Context, tenant domain.TenantID, name string) (Replayed, error) {
	var sum Replayed
	u, err := c.unparking(ctx, tenant, name)
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

// DiscardParked gives up what waits for a parked document: each event becomes one that the projection passes over, as by
// Skip, and the document goes on with the next one. domain.CodeNotFound where it is not parked.
func (c *Catalog) DiscardParked(ctx context.Context, tenant domain.TenantID, name, document, by string) error {
	p, err := c.standing(ctx, tenant, name)
	if err != nil {
		return err
	}
	skip := domain.SkippedEvent{ProjectionID: p.ProjectionID, Tenant: tenant, Version: p.Version, Reason: "discarded with the parked document " + cut(document, maxShown), By: by}
	// A replay may have saved the document and come no further: what it has folded is not given up.
	u := &unparking{store: c.config.Store, id: p.ProjectionID, build: p.LiveBuild(), tenant: tenant}
	if u.driver, err = c.driver(u.build); err != nil {
		return err
	}
	was, err := u.load(ctx, document)
	if err != nil {
		return err
	}
	return c.config.Store.DiscardParked(ctx, skip, p.Build, document, was.version)
}
