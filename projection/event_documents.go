package projection

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/upcasting"
)

// A projection may be the source of a delivery: events then go out once their documents are stored. The deliverer keeps
// a cursor in the log, delivers no event after the position from Settled, and asks DocumentsOf for the events'
// documents. A rebuild does not move the cursor, so it delivers nothing again.

// EventDocuments are the current documents of an event.
type EventDocuments struct {
	// All are the documents that the event belongs to, in the order of its keys. There are none if the event is for no
	// document, its keys cannot be computed, or it is skipped.
	All []EventDocument
	// Waiting means that the event has not taken effect on all of its documents yet: the live build has not reached it,
	// as after a reset, or a document is parked.
	Waiting bool
	// TooLarge means that it waits because its documents are too large to be in memory together.
	TooLarge bool
	// Left means that the event was not looked at, since those before it have many documents, or large ones.
	Left bool
	// Failed is why DocumentsAsOf cannot provide a document. The event itself cannot change that.
	Failed *domain.Error
}

// EventDocument is one of the documents of an event.
type EventDocument struct {
	ID string
	// Document is the document as stored now, including later events, or from DocumentsAsOf as of the event. It is nil
	// if there is none: its events created none, or removed it.
	Document *domain.Document
	version  int64 // of the stored document, or of what is left of a removed one; 0: nothing is stored
	// Waiting means that the document is parked, and does not reflect the event, or that the event is TooLarge.
	Waiting bool
}

// Reason says why the event is Waiting, for people.
func (e *EventDocuments) Reason() string {
	if e.TooLarge {
		return errTooLargeTogether.Error()
	}
	return "the projection has parked a document of the event, or is being rebuilt; the event is delivered when its documents have applied it, or when its dead letter is replayed"
}

// Selects returns which events a projection sees: its source's categories and the types that it folds; none: all.
func (c *Catalog) Selects(p domain.Projection) (categories, types []string) {
	return p.Definition.Source.Categories, c.types(p.Definition)
}

// Settled returns how far the tenant's live documents have come: the effect of every event up to there is stored,
// except on parked documents. If the projection has nothing left to fold, that is the log's head. The error is
// domain.CodeUnsupported for a live projection, which stores nothing, and domain.CodeNotFound if the tenant has no
// projection of that name.
//
// The position may go back. A reset starts from the log's first event, another definition may fold events that the last
// one did not, and a documents database that crashed may have lost its last saves.
func (c *Catalog) Settled(ctx context.Context, tenant domain.TenantID, name string) (int64, error) {
	// Read the head before the definition: a definition that goes live in between may not have folded the events after
	// the head.
	head, err := c.config.Store.Head(ctx, tenant)
	if err != nil {
		return 0, err
	}
	var settled int64
	err = c.readStored(ctx, tenant, name, func(driver drivers.Driver, p domain.Projection) error {
		checkpoint, err := driver.Checkpoint(ctx, p.LiveBuild(), tenant)
		if err == nil {
			settled, err = c.foldedTo(ctx, tenant, p, checkpoint, head.Position)
		}
		return err
	})
	return settled, err
}

// foldedTo returns the position up to which nothing is left to fold, for a projection with a stored checkpoint. It may
// be higher than the checkpoint, which is not saved if no event was folded after it.
func (c *Catalog) foldedTo(ctx context.Context, tenant domain.TenantID, p domain.Projection, checkpoint, head int64) (int64, error) {
	if head <= checkpoint {
		return checkpoint, nil
	}
	waits, err := c.config.Store.AnyEvent(ctx, tenant, p.Definition.Source, c.types(p.Definition), checkpoint, head)
	if err != nil || waits {
		return checkpoint, err
	}
	return head, nil
}

// Behind reports whether there are events after a position returned by Settled that the projection still has to fold,
// so that the position will advance. Otherwise it may stay where it is for good.
func (c *Catalog) Behind(ctx context.Context, tenant domain.TenantID, name string, settled int64) (bool, error) {
	head, err := c.config.Store.Head(ctx, tenant)
	if err != nil || head.Position <= settled {
		return false, err
	}
	p, err := c.Live(ctx, tenant, name)
	if err != nil {
		return false, err
	}
	return c.config.Store.AnyEvent(ctx, tenant, p.Definition.Source, c.types(p.Definition), settled, head.Position)
}

// settledPoll is how often AwaitSettled polls at first, since another process may follow the projection. The interval
// grows with the wait.
const (
	settledPoll    = 50 * time.Millisecond
	settledPollMax = 2 * time.Second
)

// AwaitSettled is Settled, but waits until the result is above a position, for at most wait. After that time the result
// may be at or below the position.
func (c *Catalog) AwaitSettled(ctx context.Context, tenant domain.TenantID, name string, above int64, wait time.Duration) (int64, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for pause := settledPoll; ; pause = min(2*pause, settledPollMax) {
		p, err := c.Live(ctx, tenant, name)
		if err != nil {
			return 0, err
		}
		// Subscribe before reading, so that a change in between is not missed.
		moved, done := c.config.Progress.wait(p.ProjectionID, tenant)
		settled, err := c.Settled(ctx, tenant, name)
		if err != nil || settled > above {
			done()
			return settled, err
		}
		poll, over := time.NewTimer(pause), false
		select {
		case <-moved:
		case <-poll.C:
		case <-deadline.C:
			over = true
		case <-ctx.Done():
			err = ctx.Err()
		}
		poll.Stop()
		done()
		if over || err != nil {
			return settled, err
		}
	}
}

// maxDocumentsAtOnce is how many documents DocumentsOf loads, unless there are more events, or the first event has
// more.
const maxDocumentsAtOnce = 1000

// DocumentsOf returns, for each of the events from the log, the live build's documents that it belongs to, as stored
// now. Each document is loaded once, however many events it has. Events that the projection does not see belong to
// none. If the events have more than maxDocumentsAtOnce, the last ones are Left, but never all of them. Errors are
// those of Settled.
func (c *Catalog) DocumentsOf(ctx context.Context, tenant domain.TenantID, name string, events []domain.Event) ([]EventDocuments, error) {
	if len(events) == 0 {
		return nil, nil
	}
	var found []EventDocuments
	err := c.readStored(ctx, tenant, name, func(driver drivers.Driver, p domain.Projection) (err error) {
		found, err = c.documentsOf(ctx, driver, p, tenant, events)
		return err
	})
	return found, err
}

// documentsOf reads the checkpoint, then the exclusions, and then the documents. Exclusions were stored before
// the checkpoint passed it, and an unparked document was stored before it was unparked. Hence the loaded documents
// contain every event that is not Waiting.
func (c *Catalog) documentsOf(ctx context.Context, driver drivers.Driver, p domain.Projection, tenant domain.TenantID, events []domain.Event) ([]EventDocuments, error) {
	fold, err := c.foldOf(ctx, p.Definition)
	if err != nil {
		return nil, err
	}
	set, err := fold.Upcasters().Now(ctx, tenant)
	if err != nil {
		return nil, err
	}
	checkpoint, err := driver.Checkpoint(ctx, p.LiveBuild(), tenant)
	if err != nil {
		return nil, err
	}
	exclusions, err := c.config.Store.Exclusions(ctx, tenant, p.ProjectionID, p.Build, p.Version)
	if err != nil {
		return nil, err
	}
	found := make([]EventDocuments, len(events))
	meter := expr.MeterOf(ctx)
	looked := 0
	for i, event := range events {
		if looked >= max(maxDocumentsAtOnce, len(events)) {
			found[i].Left = true
			continue
		}
		switch {
		case !fold.Sees(&event):
		case event.Position > checkpoint:
			found[i].Waiting = true
		default:
			found[i] = locateDocuments(meter, fold, set, event, exclusions)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		looked += len(found[i].All)
	}
	if looked == 0 {
		return found, nil
	}
	loaded, err := loadFor(ctx, driver, p.LiveBuild(), tenant, found)
	if err != nil {
		return nil, err
	}
	documents := make(map[string]*domain.Document, len(loaded))
	for i := range loaded {
		documents[loaded[i].ID] = &loaded[i]
	}
	for i := range found {
		for j := range found[i].All {
			stored := documents[found[i].All[j].ID]
			if stored == nil {
				continue
			}
			found[i].All[j].version = stored.Version
			if stored.Data != nil { // otherwise it is the remainder of a removed document
				found[i].All[j].Document = stored
			}
		}
	}
	return found, nil
}

// DocumentIDs returns the ids of the documents of a projection that the events belong to, by its definition. It leaves
// out events that the projection cannot fold.
func (c *Catalog) DocumentIDs(ctx context.Context, tenant domain.TenantID, p domain.Projection, events []domain.Event) (ids []string, err error) {
	fold, err := c.foldOf(ctx, p.Definition)
	if err != nil {
		return nil, err
	}
	set, err := fold.Upcasters().Now(ctx, tenant)
	if err != nil {
		return nil, err
	}
	meter := expr.MeterOf(ctx)
	for _, event := range events {
		if !fold.Sees(&event) {
			continue
		}
		for _, document := range locateDocuments(meter, fold, set, event, domain.Exclusions{}).All {
			ids = append(ids, document.ID)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// loadFor loads the documents of events. While they are too large together, it leaves the last half of the events.
func loadFor(ctx context.Context, driver drivers.Driver, build domain.Build, tenant domain.TenantID, found []EventDocuments) ([]domain.Document, error) {
	for {
		var ids []string
		var with []*EventDocuments
		for i := range found {
			if len(found[i].All) > 0 {
				with = append(with, &found[i])
			}
			for _, document := range found[i].All {
				ids = append(ids, document.ID)
			}
		}
		slices.Sort(ids)
		documents, err := driver.Load(ctx, build, tenant, slices.Compact(ids))
		switch {
		case !errors.Is(err, drivers.ErrLoadTooLarge):
			return documents, err
		case len(with) > 1:
			for _, left := range with[(len(with)+1)/2:] {
				*left = EventDocuments{Left: true}
			}
		default:
			with[0].Waiting, with[0].TooLarge = true, true
			for i := range with[0].All {
				with[0].All[i].Waiting = true
			}
			return nil, nil
		}
	}
}

// locateDocuments returns the ids of the documents that a folded event belongs to, and whether the event still waits
// for a parked one. The result is meaningless if the meter ended the evaluation.
func locateDocuments(meter *expr.Meter, fold *folding.Fold, set *upcasting.Set, event domain.Event, exclusions domain.Exclusions) (found EventDocuments) {
	if exclusions.Skips(event.Position, "") || event.Gap != nil {
		return found
	}
	var targets []folding.Target
	fault := folding.Upcast(meter, set, &event)
	if fault == nil {
		e := folding.NewEvent(&event, meter)
		targets, fault = fold.Targets(nil, &e)
	}
	if fault != nil {
		_, found.Waiting = exclusions.Parked[domain.ParkedEventID(event.ID)]
		return found
	}
	for _, target := range targets {
		if exclusions.Skips(event.Position, target.ID) {
			continue
		}
		from, parked := exclusions.Parked[target.ID]
		document := EventDocument{ID: target.ID, Waiting: parked && event.Position >= from}
		found.Waiting = found.Waiting || document.Waiting
		found.All = append(found.All, document)
	}
	return found
}

// readStored is readLive for a projection that stores its documents.
func (c *Catalog) readStored(ctx context.Context, tenant domain.TenantID, name string, read func(drivers.Driver, domain.Projection) error) error {
	find := func() (domain.Projection, error) { return c.Live(ctx, tenant, name) }
	return c.retryDropped(find, func(p *domain.Projection) error {
		if p.Definition.Mode == domain.ModeLive {
			return domain.Errorf(domain.CodeUnsupported, "projection", "projection %q is live and stores no documents; change its mode to async", p.Name)
		}
		driver, err := c.driver(p.LiveBuild())
		if err != nil {
			return err
		}
		return read(driver, *p)
	})
}

// foldOf returns a definition's fold, with the upcasters. The compiled fold is kept as long as it is used now and then.
func (c *Catalog) foldOf(ctx context.Context, definition domain.Definition) (*folding.Fold, error) {
	sum := folding.SumOf(&definition)
	if fold, ok := c.folds.Get(sum); ok {
		return fold, nil
	}
	fold, err := folding.CompileIn(ctx, definition, c.config.Handlers)
	if err != nil {
		return nil, err
	}
	fold = fold.WithUpcasters(c.config.Upcasters)
	c.folds.Add(sum, fold)
	return fold, nil
}
