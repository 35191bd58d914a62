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
	"github.com/manifold-es/manifold/upcasting"
)

// How long a replay waits for the worker that follows the log, and how often it looks: while events for the document keep
// coming, or while what waits is beyond what that worker has saved.
const (
	unparkingPatience = 5 * time.Second
	unparkingPoll     = 25 * time.Millisecond
)

// Where a first go did not bring a document back, it is held during the next ones: nothing can come to wait for it then.
const (
	holdsAtOnce = 2    // in a process: each takes a connection to Manifold's own database for as long
	heldEvents  = 1000 // that are folded during one go
	// holdLongest is how long a document is held at most: less than the 4 s for which the store lets a worker wait for it.
	holdLongest = 3500 * time.Millisecond
	// holdPatience is for how long of that it waits for the worker to save what it let wait before: a worker that is at that
	// is not held up.
	holdPatience = 2 * time.Second
	holdPoll     = 5 * time.Millisecond
)

// Why a go comes to nothing: nothing was saved then, and another one is made.
var (
	errBeyond  = errors.New("what waits is beyond what the worker has saved")
	errRemoves = errors.New("the document is to be removed, which has to be written down first: it must not be held then")
)

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
	holds   chan struct{} // the catalog's
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
	if u.fold, err = CompileIn(ctx, p.Definition, c.config.Handlers); err != nil {
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

// parkedPage is how many events that wait are read at a time.
const parkedPage = 100

// replay folds what waits for one document, adding what comes of it to sum.
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
			most, hold = a.next, true // that only a part is saved concerns nobody else then
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

// replayAttempt is one go at a document: what waits at or below the checkpoint is folded and saved, and then taken away.
type replayAttempt struct {
	*unparking
	document string
	most     int // at most so many events; 0: all
	next     int // with errAgain: at most so many next time

	locked  bool // nothing can come to wait
	patient bool // errBeyond also where only some of what waits is beyond what the worker has saved
	load    func(ctx context.Context) (held, error)
	waiting func(ctx context.Context, after int64, limit int) ([]domain.Event, error)

	done    []int64       // positions that need not wait any more
	applied int           // events among them that took effect
	last    *domain.Event // of these
	beyond  bool          // something waits that the worker has not passed yet
}

// do reports whether the document is parked no more, and otherwise whether it cannot be folded further. errAgain: it is to
// be tried with fewer events; drivers.ErrStale: the checkpoint has moved; errBeyond: what waits is beyond it. Nothing was saved
// then.
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

// doHeld is do while nothing can come to wait for the document: its row is locked, and whoever wants to let an event wait is
// held up. Where everything that waits can be folded, and is not too much at once, the document is parked no more, however
// many events keep coming. errRemoves: it is to be done by do.
//
// That the row is locked makes it come to its end; that nothing goes wrong does not depend on it. Where the lock is lost, what is
// saved is what do would have saved, and nothing is taken away.
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
			case errors.Is(err, drivers.ErrStale) && a.patient: // by other documents' events: at the next checkpoint, then
			default:
				stuck = failure != nil
				return a.done, failure, err
			}
		}
	})
	if err != nil && holding.Err() != nil && ctx.Err() == nil {
		a.applied = 0
		return false, false, nil // it took too long; what was saved is seen by the document's version
	}
	return left, stuck && !left, err
}

// foldAndSave folds what waits onto the document and saves it; done is what need not wait any more then. The failure is that
// of the first event that still waits, where it cannot be folded. Errors are those of do; nothing was saved with one.
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
			// The one event makes a document that cannot be kept.
			fault = a.fold.blame(&Event{Event: a.last}, a.fold.where(a.last.Type), err)
			a.done, a.applied = slices.DeleteFunc(a.done, func(position int64) bool { return position == a.last.Position }), 0
		}
	}
	if fault == nil {
		return nil, nil
	}
	fault.DocumentID = a.document
	fault.tellBefore(a.fold, &was)
	return &domain.ParkedDocument{Position: fault.Event.Position, EventID: fault.Event.ID, Failure: fault.Failure()}, nil
}

// stored returns the document as it is stored.
func (u *unparking) stored(ctx context.Context, document string) (held, error) {
	stored, err := u.driver.Load(ctx, u.build, u.tenant, []string{document})
	for _, d := range stored {
		return held{version: d.Version, data: d.Data, there: true}, err
	}
	return held{}, err
}

// load returns the document as it is stored. Where it is not there, its version is the position of the event by which a
// replay removed it, if one did.
func (u *unparking) load(ctx context.Context, document string) (was held, err error) {
	if was, err = u.stored(ctx, document); err != nil || was.there {
		return was, err
	}
	parked, _, err := u.store.ParkedDocument(ctx, u.tenant, u.id, u.build.Number, document)
	return held{version: parked.RemovedAt}, err
}

// foldWaiting folds what waits at or below the checkpoint onto the document as it was. The fault is that of the first event,
// where that cannot be folded; where a later one cannot, errAgain asks for those before it alone.
func (a *replayAttempt) foldWaiting(ctx context.Context, was held, checkpoint int64) (now held, fault *EventError, err error) {
	now = was
	meter := expr.MeterOf(ctx)
	var doc Value
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
			event, belongs := &Event{Event: &events[i], meter: meter}, false
			fault := upcast(meter, a.through, event.Event)
			if fault == nil {
				belongs, fault = a.belongs(event)
			}
			if fault == nil && belongs {
				doc, fault = a.foldOne(doc, &now, event)
			}
			switch {
			case ctx.Err() != nil:
				return now, nil, context.Cause(ctx)
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
		switch {
		case a.locked && was.there:
			return errRemoves // the row is locked
		case a.locked:
			return nil // there was none, and there is to be none: that what waits is taken away is all of it
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
