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
	replayPatience = 5 * time.Second
	replayPoll     = 25 * time.Millisecond
)

// If the first attempt did not unpark a document, later attempts lock it, so that no further event can start to wait.
const (
	locksAtOnce     = 2    // per process: each lock takes a connection to Manifold's own database
	maxLockedEvents = 1000 // events folded in one attempt
	// maxLockTime is the longest time to lock a document: less than the 4 s for which the store lets a worker wait for
	// it.
	maxLockTime = 3500 * time.Millisecond
	// lockedPatience is how much of that time to wait for the worker to save the events before the waiting ones. A
	// worker that is doing so is not blocked.
	lockedPatience = 2 * time.Second
	lockedPoll     = 5 * time.Millisecond
)

// parkedReplay folds the events that wait for parked documents. docs/decisions/0024-parked-documents.md explains why it
// and the worker that follows the log, in whatever process, do not interfere.
type parkedReplay struct {
	store      Store
	driver     drivers.Driver
	id         domain.ProjectionID
	version    int64 // of the definition
	build      domain.Build
	tenant     domain.TenantID
	fold       *folding.Fold
	upcasters  *upcasting.Set
	exclusions domain.Exclusions
	locks      chan struct{} // the catalog's parkedLocks
}

func (c *Catalog) newParkedReplay(ctx context.Context, tenant domain.TenantID, name string) (*parkedReplay, error) {
	p, err := c.projectionForFaults(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	u := &parkedReplay{store: c.config.Store, id: p.ProjectionID, version: p.Version, build: p.LiveBuild(), tenant: tenant, locks: c.parkedLocks}
	if u.driver, err = c.driver(u.build); err != nil {
		return nil, err
	}
	if u.fold, err = folding.CompileIn(ctx, p.Definition, c.config.Handlers); err != nil {
		return nil, err
	}
	u.fold = u.fold.WithUpcasters(c.config.Upcasters)
	if u.upcasters, err = u.fold.Upcasters().Now(ctx, tenant); err != nil {
		return nil, err
	}
	exclusions, err := c.config.Store.Exclusions(ctx, tenant, p.ProjectionID, p.Build, p.Version)
	u.exclusions = exclusions
	return u, err
}

// replay folds the events that wait for one document, and adds the result to sum. It makes attempts, each of which ends
// in one of these ways:
//
//	attemptUnparked | nothing waits any longer                             | done
//	attemptStuck    | the first remaining event cannot be folded           | done: the document stays parked
//	attemptPartial  | events were saved, and others still wait             | try again, locked
//	attemptTooMany  | the waiting events must be folded in smaller parts   | try again, locked, with fewer events
//	attemptRemoves  | the document is to be removed, which no lock allows  | try again, not locked
//	attemptEarly    | the worker has not saved the events before them yet  | wait, then try again, locked
//	attemptStale    | the worker has moved the checkpoint during the save  | wait, then try again, locked
//
// The first attempt does not lock the document. After replayPatience, it stays parked.
func (u *parkedReplay) replay(ctx context.Context, document string, sum *Replayed) error {
	began := time.Now()
	for most, locked := 0, false; ; {
		a := replayAttempt{parkedReplay: u, document: document, limit: most}
		run := a.run
		if locked {
			run = a.runLocked
		}
		end, err := run(ctx)
		if err != nil {
			return fmt.Errorf("replay the parked document %q of projection %q: %w", document, u.id.Name, err)
		}
		switch end {
		case attemptUnparked:
			sum.Events += int64(a.applied)
			sum.Documents++
			return nil
		case attemptStuck:
			sum.Events += int64(a.applied)
			sum.StillParked++
			return nil
		case attemptPartial:
			sum.Events += int64(a.applied)
			most, locked = 0, true
		case attemptTooMany:
			most, locked = a.nextLimit, true // a partial save then affects no one else
			continue
		case attemptRemoves:
			locked = false
			continue
		case attemptEarly, attemptStale:
			locked = true
		}
		if time.Since(began) > replayPatience {
			sum.StillParked++
			return nil
		}
		if end == attemptPartial && a.applied > 0 {
			continue
		}
		select {
		case <-time.After(replayPoll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// parkedPage is how many waiting events are read at a time.
const parkedPage = 100

// replayAttempt is one attempt at a document. It folds and saves the events that wait at or below the checkpoint, and
// then removes them.
type replayAttempt struct {
	*parkedReplay
	document  string
	limit     int // at most this many events; 0: all
	nextLimit int // with attemptTooMany: the limit for the next attempt

	locked  bool // no further event can start to wait
	patient bool // end as attemptEarly even if only some of the waiting events are after what the worker has saved
	load    func(ctx context.Context) (cachedDocument, error)
	waiting func(ctx context.Context, after int64, limit int) ([]domain.Event, error)

	done    []int64             // positions that need not wait any longer
	applied int                 // how many of them took effect
	last    *domain.Event       // the last of these
	now     cachedDocument      // the document after it
	fault   *folding.EventError // of the first remaining event, if that cannot be folded
	beyond  bool                // an event waits that the worker has not passed yet
}

// attemptEnd is how an attempt ends; see parkedReplay.replay.
type attemptEnd uint8

const (
	attemptUnderWay attemptEnd = iota // it has not ended: what it has folded is saved
	attemptUnparked
	attemptStuck
	attemptPartial
	attemptTooMany
	attemptRemoves
	attemptEarly
	attemptStale
)

// run makes the attempt.
func (a *replayAttempt) run(ctx context.Context) (attemptEnd, error) {
	a.load = func(ctx context.Context) (cachedDocument, error) { return a.parkedReplay.load(ctx, a.document) }
	a.waiting = func(ctx context.Context, after int64, limit int) ([]domain.Event, error) {
		return a.store.ParkedEvents(ctx, a.tenant, a.id, a.build.Number, a.document, after, limit)
	}
	if end, err := a.foldAndSave(ctx); err != nil || end != attemptUnderWay {
		return end, err
	}
	left, err := a.store.Unpark(ctx, a.tenant, a.id, a.build.Number, a.document, a.done, a.failure())
	return a.endOf(left), err
}

// errRollBack ends the transaction of an attempt with a lock that has saved nothing.
var errRollBack = errors.New("the attempt has saved nothing")

// runLocked is run with the document's row locked: a worker that wants to make an event wait is blocked. If all waiting
// events can be folded, and are not too many at once, the document is unparked, however many events keep coming.
//
// The lock ensures progress; correctness does not depend on it. If the lock is lost, the saved documents are those that
// run would have saved, and no waiting event is removed.
func (a *replayAttempt) runLocked(ctx context.Context) (attemptEnd, error) {
	select {
	case a.locks <- struct{}{}:
		defer func() { <-a.locks }()
	case <-ctx.Done():
		return attemptUnderWay, context.Cause(ctx)
	}
	if a.limit == 0 || a.limit > maxLockedEvents {
		a.limit = maxLockedEvents
	}
	holding, cancel := context.WithTimeout(ctx, maxLockTime)
	defer cancel()
	var end attemptEnd
	left, err := a.store.UnparkHeld(holding, a.tenant, a.id, a.build.Number, a.document, func(ctx context.Context, removedAt int64,
		waiting func(ctx context.Context, after int64, limit int) ([]domain.Event, error)) (_ []int64, _ *domain.ParkedDocument, err error) {
		a.locked, a.waiting = true, waiting
		a.load = func(ctx context.Context) (cachedDocument, error) {
			was, err := a.stored(ctx, a.document)
			if !was.exists {
				was.version = removedAt
			}
			return was, err
		}
		if end, err = a.foldAndSavePatiently(ctx); err == nil && end != attemptUnderWay {
			err = errRollBack
		}
		return a.done, a.failure(), err
	})
	switch {
	case err != nil && holding.Err() != nil && ctx.Err() == nil:
		a.applied = 0
		return attemptPartial, nil // it took too long; the document's version shows what was saved
	case errors.Is(err, errRollBack):
		return end, nil
	}
	return a.endOf(left), err
}

// endOf returns the end of an attempt that has saved what it has folded, and removed the events that need not wait any
// longer.
func (a *replayAttempt) endOf(left bool) attemptEnd {
	switch {
	case left:
		return attemptUnparked
	case a.fault != nil:
		return attemptStuck
	}
	return attemptPartial
}

// foldAndSavePatiently repeats foldAndSave while the worker catches up with the waiting events, for a while.
func (a *replayAttempt) foldAndSavePatiently(ctx context.Context) (attemptEnd, error) {
	for began := time.Now(); ; {
		a.patient = time.Since(began) < lockedPatience
		end, err := a.foldAndSave(ctx)
		switch {
		case err != nil || !a.patient:
			return end, err
		case end == attemptEarly:
			select {
			case <-time.After(lockedPoll):
			case <-ctx.Done():
				return end, context.Cause(ctx)
			}
		case end == attemptStale: // caused by other documents' events: try again at once
		default:
			return end, nil
		}
	}
}

// foldAndSave folds the waiting events into the document and saves it; a.done are then the events that need not wait
// any longer. If the attempt ends here, or fails, nothing was saved.
func (a *replayAttempt) foldAndSave(ctx context.Context) (attemptEnd, error) {
	a.done, a.applied, a.last, a.fault, a.beyond = nil, 0, nil, nil, false
	checkpoint, err := a.driver.Checkpoint(ctx, a.build, a.tenant)
	if err != nil {
		return attemptUnderWay, err
	}
	was, err := a.load(ctx)
	if err != nil {
		return attemptUnderWay, err
	}
	end, err := a.foldWaiting(ctx, was, checkpoint)
	switch {
	case err != nil || end != attemptUnderWay:
		return end, err
	case a.beyond && (a.patient || len(a.done) == 0):
		return attemptEarly, nil
	}
	if a.applied > 0 {
		if end, err := a.save(ctx, was, checkpoint); err != nil || end != attemptUnderWay {
			return end, err
		}
	}
	if a.fault != nil {
		a.fault.DocumentID = a.document
		addDocumentBefore(a.fault, a.fold, &was)
	}
	return attemptUnderWay, nil
}

// failure returns the fault of the first remaining event as it is stored; nil: there is none.
func (a *replayAttempt) failure() *domain.ParkedDocument {
	if a.fault == nil {
		return nil
	}
	return &domain.ParkedDocument{Position: a.fault.Event.Position, EventID: a.fault.Event.ID, Failure: a.fault.Failure()}
}

// stored returns the document as stored.
func (u *parkedReplay) stored(ctx context.Context, document string) (cachedDocument, error) {
	stored, err := u.driver.Load(ctx, u.build, u.tenant, []string{document})
	for _, d := range stored {
		return cachedDocument{version: d.Version, data: d.Data, exists: true}, err
	}
	return cachedDocument{}, err
}

// load returns the document as stored. If it does not exist, its version is the position of the event by which a replay
// removed it, if any.
func (u *parkedReplay) load(ctx context.Context, document string) (was cachedDocument, err error) {
	if was, err = u.stored(ctx, document); err != nil || was.exists {
		return was, err
	}
	parked, _, err := u.store.ParkedDocument(ctx, u.tenant, u.id, u.build.Number, document)
	return cachedDocument{version: parked.RemovedAt}, err
}

// foldWaiting folds the events that wait at or below the checkpoint into the document. If the first one cannot be
// folded, it sets a.fault. If a later one cannot, it ends the attempt, so that the next one folds only those before it.
func (a *replayAttempt) foldWaiting(ctx context.Context, was cachedDocument, checkpoint int64) (attemptEnd, error) {
	a.now = was
	meter := expr.MeterOf(ctx)
	var doc folding.Value
	for after := int64(0); ; {
		events, err := a.waiting(ctx, after, parkedPage)
		if err != nil || len(events) == 0 {
			return attemptUnderWay, err
		}
		for i := range events {
			if after = events[i].Position; after > checkpoint {
				a.beyond = true
				return attemptUnderWay, nil
			}
			if a.limit > 0 && a.applied == a.limit {
				return attemptUnderWay, nil
			}
			if a.exclusions.Skips(after, a.document) || after <= was.version || events[i].Gap != nil {
				a.done = append(a.done, after)
				continue
			}
			fault := folding.Upcast(meter, a.upcasters, &events[i])
			event, belongs := folding.NewEvent(&events[i], meter), false
			if fault == nil {
				belongs, fault = a.target(&event)
			}
			if fault == nil && belongs {
				doc, fault = a.foldOne(doc, &event)
			}
			switch {
			case ctx.Err() != nil:
				return attemptUnderWay, context.Cause(ctx)
			case fault != nil && a.applied > 0 && a.limit != a.applied:
				a.nextLimit = a.applied
				return attemptTooMany, nil // Go code may have changed the document on which it failed
			case fault != nil:
				a.fault = fault
				return attemptUnderWay, nil
			}
			a.done = append(a.done, after)
			if belongs {
				a.applied, a.last = a.applied+1, event.Event
			}
		}
	}
}

// foldOne folds an event into the document. doc is the document in the handler's form; nil means to decode it from
// a.now.
func (a *replayAttempt) foldOne(doc folding.Value, event *folding.Event) (folding.Value, *folding.EventError) {
	f := a.fold
	if doc == nil && !f.Maps() {
		var fault *folding.EventError
		if doc, fault = f.Decode(a.now.data, event); fault != nil {
			return nil, fault
		}
	}
	after, fault := f.Next(doc, event)
	if fault != nil {
		return nil, fault
	}
	if after != nil || !f.Maps() {
		a.now.value, a.now.data, a.now.version = after, nil, event.Position
	}
	return after, nil
}

// target sets the event's target, and reports whether the event belongs to the document. It may instead have been
// parked by itself because its keys could not be computed. Such an event needs no document if it turns out to be for
// none. If it is for one, later events may have been folded into that document already.
func (a *replayAttempt) target(event *folding.Event) (belongs bool, _ *folding.EventError) {
	targets, fault := a.fold.Targets(nil, event)
	if fault != nil {
		return false, fault
	}
	for _, target := range targets {
		if target.ID == a.document {
			event.Into(target)
			return true, nil
		}
	}
	switch {
	case a.document != domain.ParkedEventID(event.ID):
		return false, a.fold.Blame(event, "key", fmt.Errorf("it no longer gives this document; start a rebuild, which folds the event into its present documents"))
	case len(targets) == 0:
		return false, nil
	}
	return false, a.fold.Blame(event, "key", fmt.Errorf("its key can be computed now, and is %q, but later events may have been folded into that document already; start a rebuild, which folds it in order", folding.Clip(targets[0].ID)))
}

// save writes the folded document. If the database refuses it because of a single event, that event is at fault.
func (a *replayAttempt) save(ctx context.Context, was cachedDocument, checkpoint int64) (attemptEnd, error) {
	end, err := a.write(ctx, was, checkpoint)
	switch {
	case errors.Is(err, drivers.ErrStale):
		return attemptStale, nil
	case err == nil || !unstorable(err):
		return end, err
	case a.applied > 1:
		a.nextLimit = a.applied / 2
		return attemptTooMany, nil
	}
	a.fault = a.fold.Blame(&folding.Event{Event: a.last}, a.fold.Where(a.last.Type), err)
	a.done, a.applied = slices.DeleteFunc(a.done, func(position int64) bool { return position == a.last.Position }), 0
	return attemptUnderWay, nil
}

// write writes the document without moving the checkpoint.
func (a *replayAttempt) write(ctx context.Context, was cachedDocument, checkpoint int64) (attemptEnd, error) {
	if a.now.version == was.version {
		return attemptUnderWay, nil // a map that makes no record
	}
	data, err := a.now.encode(a.fold)
	if err != nil {
		return attemptUnderWay, &unstorableError{a.document, err}
	}
	if !a.fold.Immutable() && data != nil {
		data = domain.CanonicalNumbers(data)
	}
	batch := drivers.Batch{From: checkpoint, To: checkpoint}
	switch {
	case data != nil:
		batch.Upserts = []domain.Document{{ID: a.document, Version: a.now.version, Data: data}}
	case a.locked && was.exists:
		return attemptRemoves, nil // the row that RemoveParked writes is locked
	case a.locked:
		return attemptUnderWay, nil // there was none, and there should be none: removing the waiting events is all
	default:
		// A stored document's version shows what it has seen; a missing document shows nothing.
		if err := a.store.RemoveParked(ctx, a.tenant, a.id, a.build.Number, a.document, a.now.version); err != nil {
			return attemptUnderWay, err
		}
		batch.Deletes = []drivers.Deletion{{ID: a.document, Version: a.now.version}}
	}
	return attemptUnderWay, a.driver.Save(ctx, a.build, a.tenant, batch)
}
