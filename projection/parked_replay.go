package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/upcasting"
)

// How long, and how often, a replay waits for the worker that follows the log. It waits while events for the document
// keep coming, or while waiting events are after what that worker has saved.
const (
	unparkingPatience = 5 * time.Second
	unparkingPoll     = 25 * time.Millisecond
)

// If the first attempt did not unpark a document, later attempts lock it, so that no further event can start to wait.
const (
	holdsAtOnce = 2    // per process: each lock takes a connection to Manifold's own database
	heldEvents  = 1000 // events folded in one attempt
	// holdLongest is the longest time to hold a document: less than the 4 s for which the store lets a worker wait for
	// it.
	holdLongest = 3500 * time.Millisecond
	// holdPatience is how much of that time to wait for the worker to save the events before the waiting ones. A worker
	// that is doing so is not blocked.
	holdPatience = 2 * time.Second
	holdPoll     = 5 * time.Millisecond
)

// Why an attempt fails: nothing was saved, and another attempt follows.
var (
	errBeyond  = errors.New("what waits is beyond what the worker has saved")
	errRemoves = errors.New("the document is to be removed, which has to be written down first: it must not be held then")
)

// unparking folds the events that wait for parked documents. docs/decisions/0024-parked-documents.md explains why it
// and the worker that follows the log, in whatever process, do not interfere.
type unparking struct {
	store   CatalogStore
	driver  drivers.Driver
	id      domain.ProjectionID
	build   domain.Build
	tenant  domain.TenantID
	fold    *folding.Fold
	through *upcasting.Set
	skipped []int64
	holds   chan struct{} // the catalog's holds
}

func (c *Catalog) unparking(ctx context.Context, tenant domain.TenantID, name string) (*unparking, error) {
	p, err := c.standing(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	u := &unparking{store: c.config.Store, id: p.ProjectionID, build: p.LiveBuild(), tenant: tenant, holds: c.holds}
	if u.driver, err = c.driver(u.build); err != nil {
		return nil, err
	}
	if u.fold, err = folding.CompileIn(ctx, p.Definition, c.config.Handlers); err != nil {
		return nil, err
	}
	u.fold = u.fold.Through(c.config.Upcasters)
	if u.through, err = u.fold.Upcasters().Now(ctx, tenant); err != nil {
		return nil, err
	}
	aside, err := c.config.Store.Aside(ctx, tenant, p.ProjectionID, p.Build, p.Version)
	u.skipped = aside.Skipped
	return u, err
}

// parkedPage is how many waiting events are read at a time.
const parkedPage = 100

// replay folds the events that wait for one document, and adds the result to sum.
func (u *unparking) replay(ctx context.Context, document string, sum *Replayed) error {
	began := time.Now()
	for most, hold := 0, false; ; {
		a := replayAttempt{unparking: u, document: document, most: most}
		do := a.do
		if hold {
			do = a.doHeld
		}
		left, stuck, err := do(ctx)
		switch {
		case errors.Is(err, errAgain):
			most, hold = a.next, true // a partial save then affects no one else
			continue
		case errors.Is(err, errRemoves):
			hold = false
			continue
		case err != nil && !errors.Is(err, drivers.ErrStale) && !errors.Is(err, errBeyond):
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
		hold = true
		if a.applied == 0 || err != nil {
			select {
			case <-time.After(unparkingPoll):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// replayAttempt is one attempt at a document. It folds and saves the events that wait at or below the checkpoint, and
// then removes them.
type replayAttempt struct {
	*unparking
	document string
	most     int // at most this many events; 0: all
	next     int // with errAgain: the limit for the next attempt

	locked  bool // no further event can start to wait
	patient bool // return errBeyond even if only some of the waiting events are after what the worker has saved
	load    func(ctx context.Context) (held, error)
	waiting func(ctx context.Context, after int64, limit int) ([]domain.Event, error)

	done    []int64       // positions that need not wait any longer
	applied int           // how many of them took effect
	last    *domain.Event // the last of these
	beyond  bool          // an event waits that the worker has not passed yet
}

// do reports whether the document has left, that is, is no longer parked. Otherwise stuck reports that it cannot be
// folded further. The errors mean that nothing was saved. errAgain: retry with fewer events. drivers.ErrStale: the
// checkpoint has moved. errBeyond: the waiting events are after the checkpoint.
func (a *replayAttempt) do(ctx context.Context) (left, stuck bool, err error) {
	a.load = func(ctx context.Context) (held, error) { return a.unparking.load(ctx, a.document) }
	a.waiting = func(ctx context.Context, after int64, limit int) ([]domain.Event, error) {
		return a.store.ParkedEvents(ctx, a.tenant, a.id, a.build.Number, a.document, after, limit)
	}
	failure, err := a.foldAndSave(ctx)
	if err != nil {
		return false, false, err
	}
	left, err = a.store.Unpark(ctx, a.tenant, a.id, a.build.Number, a.document, a.done, failure)
	return left, failure != nil, err
}

// doHeld is do with the document's row locked: a worker that wants to make an event wait is blocked. If all waiting
// events can be folded, and are not too many at once, the document is unparked, however many events keep coming.
// errRemoves: use do instead.
//
// The lock ensures progress; correctness does not depend on it. If the lock is lost, the saved documents are those that
// do would have saved, and no waiting event is removed.
func (a *replayAttempt) doHeld(ctx context.Context) (left, stuck bool, err error) {
	select {
	case a.holds <- struct{}{}:
		defer func() { <-a.holds }()
	case <-ctx.Done():
		return false, false, context.Cause(ctx)
	}
	if a.most == 0 || a.most > heldEvents {
		a.most = heldEvents
	}
	holding, cancel := context.WithTimeout(ctx, holdLongest)
	defer cancel()
	left, err = a.store.UnparkHeld(holding, a.tenant, a.id, a.build.Number, a.document, func(ctx context.Context, removedAt int64,
		waiting func(ctx context.Context, after int64, limit int) ([]domain.Event, error)) ([]int64, *domain.ParkedDocument, error) {
		a.locked, a.waiting = true, waiting
		a.load = func(ctx context.Context) (held, error) {
			was, err := a.stored(ctx, a.document)
			if !was.there {
				was.version = removedAt
			}
			return was, err
		}
		for began := time.Now(); ; {
			a.patient = time.Since(began) < holdPatience
			failure, err := a.foldAndSave(ctx)
			switch {
			case errors.Is(err, errBeyond) && a.patient:
				select {
				case <-time.After(holdPoll):
				case <-ctx.Done():
					return nil, nil, context.Cause(ctx)
				}
			case errors.Is(err, drivers.ErrStale) && a.patient: // caused by other documents' events: retry later
			default:
				stuck = failure != nil
				return a.done, failure, err
			}
		}
	})
	if err != nil && holding.Err() != nil && ctx.Err() == nil {
		a.applied = 0
		return false, false, nil // it took too long; the document's version shows what was saved
	}
	return left, stuck && !left, err
}

// foldAndSave folds the waiting events into the document and saves it; a.done are then the events that need not wait
// any longer. failure is that of the first remaining event, if that cannot be folded. Errors are those of do, and mean
// that nothing was saved.
func (a *replayAttempt) foldAndSave(ctx context.Context) (failure *domain.ParkedDocument, err error) {
	a.done, a.applied, a.last, a.beyond = nil, 0, nil, false
	checkpoint, err := a.driver.Checkpoint(ctx, a.build, a.tenant)
	if err != nil {
		return nil, err
	}
	was, err := a.load(ctx)
	if err != nil {
		return nil, err
	}
	now, fault, err := a.foldWaiting(ctx, was, checkpoint)
	switch {
	case err != nil:
		return nil, err
	case a.beyond && (a.patient || len(a.done) == 0):
		return nil, errBeyond
	}
	if a.applied > 0 {
		switch err := a.save(ctx, was, now, checkpoint); {
		case errors.Is(err, drivers.ErrStale), errors.Is(err, errRemoves):
			return nil, err
		case err != nil:
			switch {
			case !unfit(err):
				return nil, err
			case a.applied > 1:
				a.next = a.applied / 2
				return nil, errAgain
			}
			// This one event results in a document that the database refuses.
			fault = a.fold.Blame(&folding.Event{Event: a.last}, a.fold.Where(a.last.Type), err)
			a.done, a.applied = slices.DeleteFunc(a.done, func(position int64) bool { return position == a.last.Position }), 0
		}
	}
	if fault == nil {
		return nil, nil
	}
	fault.DocumentID = a.document
	addBefore(fault, a.fold, &was)
	return &domain.ParkedDocument{Position: fault.Event.Position, EventID: fault.Event.ID, Failure: fault.Failure()}, nil
}

// stored returns the document as stored.
func (u *unparking) stored(ctx context.Context, document string) (held, error) {
	stored, err := u.driver.Load(ctx, u.build, u.tenant, []string{document})
	for _, d := range stored {
		return held{version: d.Version, data: d.Data, there: true}, err
	}
	return held{}, err
}

// load returns the document as stored. If it does not exist, its version is the position of the event by which a replay
// removed it, if any.
func (u *unparking) load(ctx context.Context, document string) (was held, err error) {
	if was, err = u.stored(ctx, document); err != nil || was.there {
		return was, err
	}
	parked, _, err := u.store.ParkedDocument(ctx, u.tenant, u.id, u.build.Number, document)
	return held{version: parked.RemovedAt}, err
}

// foldWaiting folds the events that wait at or below the checkpoint into the document. The fault is that of the first
// event. If a later event cannot be folded, errAgain asks to fold only those before it.
func (a *replayAttempt) foldWaiting(ctx context.Context, was held, checkpoint int64) (now held, fault *folding.EventError, err error) {
	now = was
	meter := expr.MeterOf(ctx)
	var doc folding.Value
	for after := int64(0); ; {
		events, err := a.waiting(ctx, after, parkedPage)
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
			if skipped || after <= was.version || events[i].Gap != nil {
				a.done = append(a.done, after)
				continue
			}
			fault := folding.Upcast(meter, a.through, &events[i])
			event, belongs := folding.NewEvent(&events[i], meter), false
			if fault == nil {
				belongs, fault = a.belongs(&event)
			}
			if fault == nil && belongs {
				doc, fault = a.foldOne(doc, &now, &event)
			}
			switch {
			case ctx.Err() != nil:
				return now, nil, context.Cause(ctx)
			case fault != nil && a.applied > 0 && a.most != a.applied:
				a.next = a.applied
				return now, nil, errAgain // Go code may have changed the document on which it failed
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

// foldOne folds an event into the document. doc is the document in the handler's form; nil means to decode it from now.
func (a *replayAttempt) foldOne(doc folding.Value, now *held, event *folding.Event) (folding.Value, *folding.EventError) {
	f := a.fold
	if doc == nil && !f.Maps() {
		var fault *folding.EventError
		if doc, fault = f.Decode(now.data, event); fault != nil {
			return nil, fault
		}
	}
	after, fault := f.Next(doc, event)
	if fault != nil {
		return nil, fault
	}
	if after != nil || !f.Maps() {
		now.value, now.data, now.version = after, nil, event.Position
	}
	return after, nil
}

// belongs reports whether the event belongs to the document. It may instead have been parked by itself because its key
// could not be computed. Such an event needs no document if it turns out to be for none. If it is for one, later events
// may have been folded into that document already.
func (a *replayAttempt) belongs(event *folding.Event) (bool, *folding.EventError) {
	if a.document != domain.ParkedEventID(event.ID) {
		return true, nil
	}
	id, ok, fault := a.fold.Key(event)
	switch {
	case fault != nil || !ok:
		return false, fault
	case id == a.document:
		return true, nil
	}
	return false, a.fold.Blame(event, "key", fmt.Errorf("its key can be worked out by now, and is %q; but events behind it may have been folded into that document already: a rebuild folds it in its place", folding.Clip(id)))
}

// save writes the document without moving the checkpoint.
func (a *replayAttempt) save(ctx context.Context, was, now held, checkpoint int64) error {
	if now.version == was.version {
		return nil // a map that makes no record
	}
	data, err := now.text(a.fold)
	if err != nil {
		return err
	}
	if !a.fold.Immutable() && data != nil {
		data = domain.CanonicalNumbers(data)
	}
	batch := drivers.Batch{From: checkpoint, To: checkpoint}
	if data == nil {
		// A stored document's version shows what it has seen; a missing document shows nothing.
		switch {
		case a.locked && was.there:
			return errRemoves // the row is locked
		case a.locked:
			return nil // there was none, and there should be none: removing the waiting events is all
		}
		if err := a.store.RemoveParked(ctx, a.tenant, a.id, a.build.Number, a.document, now.version); err != nil {
			return err
		}
		batch.Deletes = []drivers.Deletion{{ID: a.document, Version: now.version}}
	} else {
		batch.Upserts = []domain.Document{{ID: a.document, Version: now.version, Data: data}}
	}
	return a.driver.Save(ctx, a.build, a.tenant, batch)
}
