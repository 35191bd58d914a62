package projection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// Log is what a Replay reads.
type Log interface {
	ReadLog(ctx context.Context, tenant domain.TenantID, q domain.LogQuery) ([]domain.Event, error)
}

// Replay folds the events of one tenant into one build, from the build's own checkpoint on. It may be stopped at any
// point, and a new one goes on from what was saved. It is for one goroutine at a time; several Replays of the same
// build and tenant, in whatever processes, are harmless: one of them wins each save.
type Replay struct {
	Driver drivers.Driver
	Build  domain.Build
	Tenant domain.TenantID
	Fold   *Fold
	Limits Limits
	Folded func(events, documents int)       // called when that many events took effect, and changed so many documents; may be nil
	Saved  func(documents []domain.Document) // called with the documents of each save, those removed left out; may be nil
	// Counted is called as events are folded, with their number, before they are saved; and with a negative number when
	// that many were folded in vain, and will be folded again. When Run returns the sum is that of Folded. May be nil.
	Counted func(events int)

	Aside   AsideStore // where skipped events and parked documents are; nil: nothing is skipped, and any fault stops
	Version int64      // of the definition that the fold was made of, whose skipped events are passed over; 0: it is no version yet

	at            position
	documentBytes int // of a document, as seen lately; 0 while unknown
	eventBytes    int // of an event, likewise

	known    known         // documents that are in memory, unsaved ones among them
	gathered gathered      // what was folded and is to be saved together
	saving   *saving       // what is being saved; nil: nothing
	aside    *aside        // what is set aside; nil: not known
	numbered int64         // the last save that succeeded, by its number
	saveTook time.Duration // how long the driver took for that
}

// position is how far a build has come with a tenant's log.
type position struct {
	known   bool        // stored is what the database has, as far as this process knows
	stored  int64       // the checkpoint in the database
	seen    int64       // up to here every event has taken effect: at or above stored
	passed  int64       // the last event that was read and has changed no document
	savedAt time.Time   // when stored was saved, or found out
	atOnce  int         // at most so many events go into a save, since more were too much for one; 0: as many as there are
	refused *EventError // an event whose document the database would not keep, and that is to be parked; nil: none
}

func (p *position) saved(to int64) {
	p.stored, p.seen, p.savedAt = to, max(p.seen, to), time.Now()
}

// Checkpoints that nothing else asks for are saved this often, so that a restart skips little. Where events were read
// that are for no document, the checkpoint is asked for at the log's end: a reader with a minPosition cannot tell from
// outside that they are for none.
const (
	checkpointPositions = 10_000
	checkpointInterval  = 30 * time.Second
)

// Run folds until every event up to and including position to has taken effect. The error is an *EventError where an
// event cannot be folded: everything before it is saved then.
func (r *Replay) Run(ctx context.Context, log Log, to int64) error {
	for {
		if err := r.locate(ctx); err != nil {
			return err
		}
		if r.at.seen >= to {
			return nil
		}
		err := r.run(ctx, log, to)
		if err == nil {
			return r.settle(ctx)
		}
		if !errors.Is(err, drivers.ErrStale) && !errors.Is(err, errAgain) {
			return err
		}
	}
}

// locate finds out where the build is, unless that is known.
func (r *Replay) locate(ctx context.Context) error {
	if r.at.known {
		r.known.whole = r.known.whole || r.at.stored == 0
		return nil
	}
	checkpoint, err := r.Driver.Checkpoint(ctx, r.Build, r.Tenant)
	if err != nil {
		return fmt.Errorf("read the checkpoint of build %d of projection %q: %w", r.Build.Number, r.Build.Name, err)
	}
	r.at = position{known: true, stored: checkpoint, seen: checkpoint, savedAt: time.Now(), atOnce: r.at.atOnce, refused: r.at.refused}
	r.forget()
	r.known.whole = checkpoint == 0
	return nil
}

// run reads, folds and saves until position to, the three beside one another: while a reading is folded the next one is
// read, and what was folded before is saved.
func (r *Replay) run(ctx context.Context, log Log, to int64) (err error) {
	ctx = budget.OfTenant(ctx, r.Tenant)
	defer func() { err = r.finish(ctx, err) }()
	reading, stop := context.WithCancel(ctx)
	defer stop()
	// Those that are in force now, whatever is remembered: a change that asked for this run is among them.
	upcasters, err := r.Fold.upcasters.Revision(ctx, r.Tenant)
	if err != nil {
		return err
	}
	read := func(ctx context.Context, q domain.LogQuery) (domain.Reading, error) {
		events, err := log.ReadLog(ctx, r.Tenant, q)
		return domain.Reading{Events: events, Upcasters: upcasters}, err
	}
	next := r.fetch(reading, read, r.at.seen+1, to, r.Limits)
	for next != nil {
		p, err := next.wait()
		if err != nil {
			return fmt.Errorf("read the log for build %d of projection %q: %w", r.Build.Number, r.Build.Name, err)
		}
		r.measure(p)
		if next = nil; p.more && p.upTo < to {
			next = r.fetch(reading, read, p.upTo+1, to, r.Limits)
		}
		if err := r.gather(ctx, p); err != nil {
			if next != nil {
				stop()
				<-next.done
			}
			return err
		}
	}
	return nil
}

// measure takes note of how large events are.
func (r *Replay) measure(p *prepared) {
	if n := len(p.reading.Events); n > 0 {
		r.eventBytes = max(1, p.bytes/n, (r.eventBytes+p.bytes/n)/2) // it grows at once and shrinks slowly
	}
}

// settle saves the checkpoint alone, where that spares a restart enough.
func (r *Replay) settle(ctx context.Context) error {
	ahead := r.at.seen - r.at.stored
	asked := r.at.passed > r.at.stored
	if ahead <= 0 || !asked && ahead < checkpointPositions && time.Since(r.at.savedAt) < checkpointInterval {
		return nil
	}
	err := r.Driver.Save(ctx, r.Build, r.Tenant, drivers.Batch{From: r.at.stored, To: r.at.seen})
	switch {
	case errors.Is(err, drivers.ErrStale):
		r.at.known = false // somebody else saved; where, is found out before the next save
	case err != nil:
		return fmt.Errorf("save build %d of projection %q at position %d: %w", r.Build.Number, r.Build.Name, r.at.seen, err)
	default:
		r.at.saved(r.at.seen)
	}
	return nil
}

// Position returns up to where every event has taken effect: at or above the checkpoint that is saved. 0 before the
// first Run.
func (r *Replay) Position() int64 { return r.at.seen }

func (r *Replay) folded(events, documents int) {
	if r.Folded != nil {
		r.Folded(events, documents)
	}
}

func (r *Replay) count(events int) {
	if r.Counted != nil && events != 0 {
		r.Counted(events)
	}
}
