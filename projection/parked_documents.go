package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/upcasting"
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

// unparking folds what waits for parked documents. docs/decisions/0024-parked-documents.md says why that and the worker
// which follows the log, wherever it is, do not harm one another.
type unparking struct {
	store   CatalogStore
	driver  drivers.Driver
	id      domain.ProjectionID
	build   domain.Build
	tenant  domain.TenantID
	fold    *Fold
	through *upcasting.Set
	skipped []int64
}

func (c *Catalog) unparking(ctx context.Context, tenant domain.TenantID, name string) (*unparking, error) {
	p, err := c.standing(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	u := &unparking{store: c.config.Store, id: p.ProjectionID, build: p.LiveBuild(), tenant: tenant}
	if u.driver, err = c.driver(u.build); err != nil {
		return nil, err
	}
	if u.fold, err = CompileWith(p.Definition, c.config.Handlers); err != nil {
		return nil, err
	}
	u.fold = u.fold.Through(c.config.Upcasters)
	if u.through, err = u.fold.upcasters.Now(ctx, tenant); err != nil {
		return nil, err
	}
	aside, err := c.config.Store.Aside(ctx, tenant, p.ProjectionID, p.Build, p.Version)
	u.skipped = aside.Skipped
	return u, err
}

// How long a replay waits for the worker that follows the log, and how often it looks: while events for the document keep
// coming, or while what waits is beyond what that worker has saved.
const (
	unparkingPatience = 5 * time.Second
	unparkingPoll     = 25 * time.Millisecond
)

// parkedPage is how many events that wait are read at a time.
const parkedPage = 100

// replay folds what waits for one document, adding what comes of it to sum.
func (u *unparking) replay(ctx context.Context, document string, sum *Replayed) error {
	began := time.Now()
	for most := 0; ; {
		a := replayAttempt{unparking: u, document: document, most: most}
		left, stuck, err := a.do(ctx)
		switch {
		case errors.Is(err, errAgain):
			most = a.next
			continue
		case err != nil && !errors.Is(err, drivers.ErrStale):
			return fmt.Errorf("replay the parked document %q of projection %q: %w", document, u.id.Name, err)
		case err == nil:
			sum.Events += int64(a.applied)
			most = 0
		}
		switch {
		case left:
			sum.Documents++
			return nil
		case stuck, time.Since(began) > unparkingPatience:
			sum.StillParked++
			return nil
		}
		if a.applied == 0 || err != nil {
			select {
			case <-time.After(unparkingPoll):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// replayAttempt is one go at a document: what waits at or below the checkpoint is folded and saved, and then taken away.
type replayAttempt struct {
	*unparking
	document string
	most     int // at most so many events; 0: all
	next     int // with errAgain: at most so many next time

	done    []int64       // positions that need not wait any more
	applied int           // events among them that took effect
	last    *domain.Event // of these
	beyond  bool          // something waits that the worker has not passed yet
}

// do reports whether the document is parked no more, and otherwise whether it cannot be folded further. errAgain: it is to
// be tried with fewer events; drivers.ErrStale: the checkpoint has moved. Nothing was saved then.
func (a *replayAttempt) do(ctx context.Context) (left, stuck bool, err error) {
	checkpoint, err := a.driver.Checkpoint(ctx, a.build, a.tenant)
	if err != nil {
		return false, false, err
	}
	was, err := a.load(ctx, a.document)
	if err != nil {
		return false, false, err
	}
	now, fault, err := a.foldWaiting(ctx, was, checkpoint)
	if err != nil {
		return false, false, err
	}
	if a.applied > 0 {
		switch err := a.save(ctx, was, now, checkpoint); {
		case errors.Is(err, drivers.ErrStale):
			return false, false, err
		case err != nil:
			_, unfit := errors.AsType[*unfitError](err)
			switch {
			case !unfit && !isCode(err, domain.CodeTooLarge):
				return false, false, err
			case a.applied > 1:
				a.next = a.applied / 2
				return false, false, errAgain
			}
			// The one event makes a document that cannot be kept.
			fault = a.fold.blame(&Event{Event: a.last}, a.fold.where(a.last.Type), err)
			a.done, a.applied = slices.DeleteFunc(a.done, func(position int64) bool { return position == a.last.Position }), 0
		}
	}
	if fault == nil {
		if len(a.done) == 0 && a.beyond {
			return false, false, nil
		}
		left, err := a.store.Unpark(ctx, a.tenant, a.id, a.build.Number, a.document, a.done, nil)
		return left, false, err
	}
	fault.DocumentID = a.document
	fault.tellBefore(a.fold, &was)
	failure := domain.ParkedDocument{Position: fault.Event.Position, EventID: fault.Event.ID, Failure: fault.Failure()}
	_, err = a.store.Unpark(ctx, a.tenant, a.id, a.build.Number, a.document, a.done, &failure)
	return false, true, err
}

// load returns the document as it is stored. Where it is not there, its version is the position of the event by which a
// replay removed it, if one did.
func (u *unparking) load(ctx context.Context, document string) (was held, err error) {
	stored, err := u.driver.Load(ctx, u.build, u.tenant, []string{document})
	if err != nil {
		return held{}, err
	}
	for _, d := range stored {
		return held{version: d.Version, data: d.Data, there: true}, nil
	}
	parked, _, err := u.store.ParkedDocument(ctx, u.tenant, u.id, u.build.Number, document)
	return held{version: parked.RemovedAt}, err
}

// foldWaiting folds what waits at or below the checkpoint onto the document as it was. The fault is that of the first event,
// where that cannot be folded; where a later one cannot, errAgain asks for those before it alone.
func (a *replayAttempt) foldWaiting(ctx context.Context, was held, checkpoint int64) (now held, fault *EventError, err error) {
	now = was
	var doc Value
	for after := int64(0); ; {
		events, err := a.store.ParkedEvents(ctx, a.tenant, a.id, a.build.Number, a.document, after, parkedPage)
		if err != nil || len(events) == 0 {
			return now, nil, err
		}
		for i := range events {
			if after = events[i].Position; after > checkpoint {
				a.beyond = true
				return now, nil, nil
			}
			if a.most > 0 && a.applied == a.most {
				return now, nil, nil
			}
			_, skipped := slices.BinarySearch(a.skipped, after)
			if skipped || after <= was.version {
				a.done = append(a.done, after)
				continue
			}
			event, belongs := &Event{Event: &events[i]}, false
			fault := upcast(a.through, event.Event)
			if fault == nil {
				belongs, fault = a.belongs(event)
			}
			if fault == nil && belongs {
				doc, fault = a.foldOne(doc, &now, event)
			}
			switch {
			case fault != nil && a.applied > 0 && a.most != a.applied:
				a.next = a.applied
				return now, nil, errAgain // code in Go may have changed the document that it has failed on
			case fault != nil:
				return now, fault, nil
			}
			a.done = append(a.done, after)
			if belongs {
				a.applied, a.last = a.applied+1, event.Event
			}
		}
	}
}

// foldOne folds an event into the document; doc is the document in the handler's form, nil where it is as now says.
func (a *replayAttempt) foldOne(doc Value, now *held, event *Event) (Value, *EventError) {
	f := a.fold
	if doc == nil && !f.Maps() {
		var err error
		if doc, err = f.handler.Decode(now.data); err != nil {
			return nil, f.blame(event, f.where(event.Type), err)
		}
	}
	after, fault := f.next(doc, event)
	if fault != nil {
		return nil, fault
	}
	if after != nil || !f.Maps() {
		now.value, now.data, now.version = after, nil, event.Position
	}
	return after, nil
}

// belongs reports whether the event is one of the document's, and not one that was parked by itself since its key could not
// be worked out. Such a one needs no document where it is for none after all; and where it is for one, events behind it may
// have been folded into that already.
func (a *replayAttempt) belongs(event *Event) (bool, *EventError) {
	if a.document != domain.ParkedEventID(event.ID) {
		return true, nil
	}
	id, ok, fault := a.fold.key(event)
	switch {
	case fault != nil || !ok:
		return false, fault
	case id == a.document:
		return true, nil
	}
	return false, a.fold.blame(event, "key", fmt.Errorf("its key can be worked out by now, and is %q; but events behind it may have been folded into that document already: a rebuild folds it in its place", clip(id)))
}

// save writes the document at the checkpoint, which stays.
func (a *replayAttempt) save(ctx context.Context, was, now held, checkpoint int64) error {
	if now.version == was.version {
		return nil // a map that makes no record
	}
	data, err := a.fold.text(&now)
	if err != nil {
		return err
	}
	if a.fold.definition.Handler != "" && data != nil {
		data = domain.CanonicalNumbers(data)
	}
	batch := drivers.Batch{From: checkpoint, To: checkpoint}
	if data == nil {
		// A document says by its version what it has seen; one that is not there says nothing.
		if err := a.store.RemoveParked(ctx, a.tenant, a.id, a.build.Number, a.document, now.version); err != nil {
			return err
		}
		batch.Deletes = []drivers.Deletion{{ID: a.document, Version: now.version}}
	} else {
		batch.Upserts = []domain.Document{{ID: a.document, Version: now.version, Data: data}}
	}
	return a.driver.Save(ctx, a.build, a.tenant, batch)
}
