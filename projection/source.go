package projection

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/expr"
)

// A projection may be the source of what delivers: events then go out when their documents are stored. Whoever delivers
// keeps a place in the log of its own, takes no event behind what Settled says, and asks DocumentsOf for what belongs to
// the events. A rebuild moves nobody's place, so that it delivers nothing again.

// EventDocument is what an event's document is now, and whether the event has taken effect on it.
type EventDocument struct {
	// ID is the document that the event belongs to; empty where it belongs to none: its key is null or cannot be worked
	// out, or somebody has told the projection to pass over the event.
	ID string
	// Document is the document as it is stored now, by later events too; nil where there is none: the events that it had
	// made none, or removed it.
	Document *domain.Document
	// Waiting is that the event has not taken effect yet: the live build has not come so far, as after a reset, or the
	// document is parked. Document says nothing of the event then.
	Waiting bool
}

// Live returns the projection that the tenant means by name, its own or else the shared one, with the build and the definition
// that are live for the tenant.
func (c *Catalog) Live(ctx context.Context, tenant domain.TenantID, name string) (domain.Projection, error) {
	return c.live(ctx, tenant, name)
}

// Selects returns which events a projection sees: its source's categories and the types that it folds; none: all.
func (c *Catalog) Selects(p domain.Projection) (categories, types []string) {
	return p.Definition.Source.Categories, c.types(p.Definition)
}

// Settled returns how far the documents of the build that is live for the tenant have come: what every event up to there
// makes of them is stored, but for documents that are parked. Where the projection has nothing left to fold that is the log's
// head. domain.CodeUnsupported for a live projection, which stores nothing, and domain.CodeNotFound where there is none of
// that name, as the tenant means it.
//
// It may go back: a reset begins from the log's first event, another definition may fold what the last one did not, and a
// database of documents that crashed may have lost the last saves.
func (c *Catalog) Settled(ctx context.Context, tenant domain.TenantID, name string) (int64, error) {
	// The head before the definition: one that goes live in between is not taken at its word for events that came behind it.
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

// foldedTo is up to where nothing is left to fold, for a projection with a stored checkpoint: a checkpoint that nothing was
// folded behind is not saved for its own sake.
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

// Behind reports whether there are events behind a position, as Settled has told it, that the projection is still to fold: it
// moves on then. Where there are none it may stay where it is for good.
func (c *Catalog) Behind(ctx context.Context, tenant domain.TenantID, name string, settled int64) (bool, error) {
	head, err := c.config.Store.Head(ctx, tenant)
	if err != nil || head.Position <= settled {
		return false, err
	}
	p, err := c.live(ctx, tenant, name)
	if err != nil {
		return false, err
	}
	return c.config.Store.AnyEvent(ctx, tenant, p.Definition.Source, c.types(p.Definition), settled, head.Position)
}

// settledPoll is how often AwaitSettled looks at first by itself, since another process may follow the projection. It
// looks less often the longer it waits.
const (
	settledPoll    = 50 * time.Millisecond
	settledPollMax = 2 * time.Second
)

// AwaitSettled is Settled, but waits until that is above a position: at most as long as wait. What it returns then may
// be at or below that.
func (c *Catalog) AwaitSettled(ctx context.Context, tenant domain.TenantID, name string, above int64, wait time.Duration) (int64, error) {
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for pause := settledPoll; ; pause = min(2*pause, settledPollMax) {
		p, err := c.live(ctx, tenant, name)
		if err != nil {
			return 0, err
		}
		// Asked for before the look: what moves in between is not missed.
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

// DocumentsOf returns for each of the events, which are as the log has them, the document of the live build that it
// belongs to, as it is stored now: documents are loaded once, however many events they have. Events that the projection
// does not see belong to none. Errors are as those of Settled.
func (c *Catalog) DocumentsOf(ctx context.Context, tenant domain.TenantID, name string, events []domain.Event) ([]EventDocument, error) {
	if len(events) == 0 {
		return nil, nil
	}
	var found []EventDocument
	err := c.readStored(ctx, tenant, name, func(driver drivers.Driver, p domain.Projection) (err error) {
		found, err = c.documentsOf(ctx, driver, p, tenant, events)
		return err
	})
	return found, err
}

// documentsOf reads the checkpoint, then what is set aside, and then the documents. What is set aside was written down
// before the checkpoint passed it, and a document that is parked no more was stored before that was so: hence what is not
// Waiting is in what is loaded.
func (c *Catalog) documentsOf(ctx context.Context, driver drivers.Driver, p domain.Projection, tenant domain.TenantID, events []domain.Event) ([]EventDocument, error) {
	fold, err := c.foldOf(ctx, p.Definition)
	if err != nil {
		return nil, err
	}
	set, err := fold.upcasters.Now(ctx, tenant)
	if err != nil {
		return nil, err
	}
	checkpoint, err := driver.Checkpoint(ctx, p.LiveBuild(), tenant)
	if err != nil {
		return nil, err
	}
	aside, err := c.config.Store.Aside(ctx, tenant, p.ProjectionID, p.Build, p.Version)
	if err != nil {
		return nil, err
	}
	found := make([]EventDocument, len(events))
	meter := expr.MeterOf(ctx)
	var ids []string
	for i := range events {
		event := events[i]
		if !fold.sees(&event) {
			continue
		}
		if event.Position > checkpoint {
			found[i].Waiting = true
			continue
		}
		if _, skipped := slices.BinarySearch(aside.Skipped, event.Position); skipped || event.Gap != nil {
			continue
		}
		var id string
		fault := upcast(meter, set, &event)
		if fault == nil {
			id, _, fault = fold.key(&Event{Event: &event, meter: meter})
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if fault != nil {
			_, found[i].Waiting = aside.Parked[domain.ParkedEventID(event.ID)]
			continue
		}
		if id == "" {
			continue
		}
		found[i].ID = id
		if from, parked := aside.Parked[id]; parked && event.Position >= from {
			found[i].Waiting = true
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return found, nil
	}
	slices.Sort(ids)
	loaded, err := driver.Load(ctx, p.LiveBuild(), tenant, slices.Compact(ids))
	if err != nil {
		return nil, err
	}
	documents := make(map[string]*domain.Document, len(loaded))
	for i := range loaded {
		if loaded[i].Data != nil { // otherwise what is left of one that was removed
			documents[loaded[i].ID] = &loaded[i]
		}
	}
	for i := range found {
		found[i].Document = documents[found[i].ID]
	}
	return found, nil
}

// sees reports whether an event is of the fold's source and of a type that it wants.
func (f *Fold) sees(event *domain.Event) bool {
	categories := f.definition.Source.Categories
	return (len(categories) == 0 || slices.Contains(categories, domain.Category(event.Stream))) &&
		(f.types == nil || slices.Contains(f.types, event.Type))
}

// readStored is readLive for a projection that stores its documents.
func (c *Catalog) readStored(ctx context.Context, tenant domain.TenantID, name string, read func(drivers.Driver, domain.Projection) error) error {
	var last int64
	for again := false; ; again = true {
		p, err := c.live(ctx, tenant, name)
		if err != nil {
			return err
		}
		if again && p.Build == last {
			return c.noTable(p)
		}
		if p.Definition.Mode == domain.ModeLive {
			return domain.Errorf(domain.CodeUnsupported, "projection", "projection %q is live: it stores no documents, so there is no moment at which one is stored; change its mode to async", p.Name)
		}
		driver, err := c.driver(p.LiveBuild())
		if err == nil {
			err = read(driver, p)
		}
		if again || !errors.Is(err, drivers.ErrNoTable) {
			return err
		}
		last = p.Build
	}
}

// foldOf returns a definition's fold, with the upcasters: compiled once for as long as it is used now and then.
func (c *Catalog) foldOf(ctx context.Context, definition domain.Definition) (*Fold, error) {
	sum := sumOf(&definition)
	if fold := c.folds.get(sum); fold != nil {
		return fold, nil
	}
	fold, err := CompileIn(ctx, definition, c.config.Handlers)
	if err != nil {
		return nil, err
	}
	fold = fold.Through(c.config.Upcasters)
	c.folds.put(sum, fold)
	return fold, nil
}

// SameValue reports whether two JSON texts have the same value: in whatever order members stand, and however numbers are
// written.
func SameValue(a, b json.RawMessage) bool { return bytes.Equal(canonical(a), canonical(b)) }
