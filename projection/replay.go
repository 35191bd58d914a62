package projection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/projection/registry"
)

// Log is what a Replay reads: an eventlog.Log, or a rebuild's, which counts the events.
type Log interface {
	ReadLog(ctx context.Context, tenant domain.TenantID, q domain.LogQuery) ([]domain.Event, error)
	ReadByStream(ctx context.Context, tenant domain.TenantID, q domain.ByStreamQuery) ([]domain.Event, error)
	FitsInCache(ctx context.Context, tenant domain.TenantID) (bool, error)
}

// Seeds returns the next seeds of a category's streams, see aggregate.States.
type Seeds func(ctx context.Context, tenant domain.TenantID, q domain.SeedQuery) (domain.SeedPage, error)

// Replay folds the events of one tenant into one build, from the build's own checkpoint on. It may be stopped at any
// point, and a new one continues from what was saved. Only one goroutine may use it at a time. Several Replays of the
// same build and tenant, in any processes, are harmless: only one of them succeeds with each save.
type Replay struct {
	Driver drivers.Driver
	Build  domain.Build
	Tenant domain.TenantID
	Fold   *folding.Fold
	Limits Limits
	// Unread means that nobody reads the build before it is complete. Its documents are then saved only every half
	// minute, or when they take too much memory, so that few saves write a document that many events change.
	Unread bool
	Fill   domain.Fill // of an unread build without a checkpoint: how far it was filled before; zero: not at all
	// Filled is called before the first save of a fill, after each, and if it is abandoned. It must store a Fill
	// without a Document before it returns, unless another worker has the build. May be nil.
	Filled func(ctx context.Context, fill domain.Fill) error
	Folded func(events, documents int)       // called with the numbers of applied events and changed documents; may be nil
	Saved  func(documents []domain.Document) // called with the documents of each save, without removed ones; may be nil
	Turn   func(ctx context.Context) error   // waits before each reading until there is room for it; may be nil
	Pacing *Pacing                           // pauses between readings while appends are in progress; nil: it does not
	Seeds  Seeds                             // from which a fill of an aggregate's states may begin documents; nil: none
	// Counted is called with the number of events folded, before they are saved. The number is negative if that many
	// events were folded in vain and will be folded again. When Run returns, the sum equals that of Folded. May be nil.
	Counted func(events int)

	Registry *registry.Registry // stores skipped events and parked documents; nil: nothing is skipped, and any fault stops
	Version  int64              // of the fold's definition, whose skipped events apply; 0: it has no version yet

	at            position
	documentBytes int // recent size of a document; 0: unknown
	eventBytes    int // recent size of an event; 0: unknown

	log Log   // of this Run
	to  int64 // of this Run

	firstSeeds *domain.SeedPage   // read before the fill that begins from them; nil: they are read with it
	memory     documentMemory     // documents in memory, including unsaved ones
	pending    pendingSave        // folded, to be saved together
	saving     *saving            // what is being saved; nil: nothing
	exclusions *domain.Exclusions // nil: not known
	numbered   int64              // the number of the last successful save
	saveTook   time.Duration      // how long the driver took for it
}

// position is how far a build has come with a tenant's log.
type position struct {
	known          bool                // stored is what the database has, as far as this process knows
	stored         int64               // the checkpoint in the database
	seen           int64               // every event up to here has taken effect: at or after stored
	lastUnchanging int64               // the last event read that changed no document
	savedAt        time.Time           // when stored was saved or read
	maxPerSave     int                 // at most this many events per save, since a larger save failed; 0: no limit
	refused        *folding.EventError // an event to park because the database refused its document; nil: none
	ahead          bool                // stored is what a second read gave after documents were found ahead of it
}

func (p *position) saved(to int64) {
	p.stored, p.seen, p.savedAt = to, max(p.seen, to), time.Now()
}

// Checkpoints that nothing else requires are saved this often, so that a restart skips little. If events were read that
// are for no document, the checkpoint is saved at the log's end: a reader with a minPosition cannot tell that they are
// for none.
const (
	checkpointPositions = 10_000
	checkpointInterval  = 30 * time.Second
)

// Run folds until every event up to and including position to has taken effect. The error is an *EventError if an event
// cannot be folded; everything before the event is saved then.
func (r *Replay) Run(ctx context.Context, log Log, to int64) error {
	for {
		if err := r.readCheckpoint(ctx); err != nil {
			return err
		}
		if r.at.seen >= to {
			return nil
		}
		r.log, r.to = log, to
		filling, err := r.continuesFill(ctx)
		switch {
		case err != nil:
		case filling:
			err = r.fill(ctx)
		default:
			if err = r.run(ctx, log, to); err == nil {
				return r.saveCheckpoint(ctx)
			}
		}
		if err != nil && !errors.Is(err, drivers.ErrStale) && !errors.Is(err, errRefold) {
			return err
		}
	}
}

// readCheckpoint reads the build's checkpoint, unless it is known.
func (r *Replay) readCheckpoint(ctx context.Context) error {
	if r.at.known {
		r.memory.complete = r.memory.complete || r.at.stored == 0 && r.Fill.To == 0
		return nil
	}
	checkpoint, err := r.Driver.Checkpoint(ctx, r.Build, r.Tenant)
	if err != nil {
		return fmt.Errorf("read the checkpoint of build %d of projection %q: %w", r.Build.Number, r.Build.Name, err)
	}
	r.at = position{
		known: true, stored: checkpoint, seen: checkpoint, savedAt: time.Now(),
		maxPerSave: r.at.maxPerSave, refused: r.at.refused, ahead: r.at.ahead && checkpoint == r.at.stored,
	}
	r.forgetUnsaved()
	r.memory.complete = checkpoint == 0 && r.Fill.To == 0
	return nil
}

// run reads, folds and saves up to position to, all three at once. While it folds a reading, it reads the next one and
// saves what was folded before.
func (r *Replay) run(ctx context.Context, log Log, to int64) (err error) {
	ctx = budget.OfTenant(ctx, r.Tenant)
	defer func() { err = r.finish(ctx, err) }()
	reading, stop := context.WithCancel(ctx)
	defer stop()
	// Use the upcasters in force now, not remembered ones: a change to them may have asked for this run.
	upcasters, err := r.Fold.Upcasters().Revision(ctx, r.Tenant)
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
		r.recordEventSize(p)
		continues, paced := p.more && p.upTo < to, r.Pacing.appending() > 0
		if next = nil; continues && !paced {
			next = r.fetch(reading, read, p.upTo+1, to, r.Limits)
		}
		if err := r.foldReading(ctx, p); err != nil {
			if next != nil {
				stop()
				<-next.done
			}
			return err
		}
		if !paced {
			continue
		}
		if err := r.awaitSave(); err != nil {
			return err
		}
		// Pause after the last reading as well: a rebuild continues with the next tenant.
		if err := r.pauseForAppends(ctx, p); err != nil {
			return err
		}
		if continues {
			next = r.fetch(reading, read, p.upTo+1, to, r.Limits.paced())
		}
	}
	return nil
}

// recordEventSize records how large events are, with what they grow by.
func (r *Replay) recordEventSize(p *prepared) {
	if n := len(p.reading.Events); n > 0 {
		size := p.bytes/n + p.grown/countEvents(p.events)
		r.eventBytes = max(1, size, (r.eventBytes+size)/2) // it grows at once and shrinks slowly
	}
}

// saveCheckpoint saves the checkpoint alone, if that saves a restart enough work.
func (r *Replay) saveCheckpoint(ctx context.Context) error {
	ahead := r.at.seen - r.at.stored
	asked := r.at.lastUnchanging > r.at.stored
	if ahead <= 0 || !asked && ahead < checkpointPositions && time.Since(r.at.savedAt) < checkpointInterval {
		return nil
	}
	err := r.Driver.Save(ctx, r.Build, r.Tenant, drivers.Batch{From: r.at.stored, To: r.at.seen})
	switch {
	case errors.Is(err, drivers.ErrStale):
		r.at.known = false // another worker has saved; its position is read before the next save
	case err != nil:
		return fmt.Errorf("save build %d of projection %q at position %d: %w", r.Build.Number, r.Build.Name, r.at.seen, err)
	default:
		r.at.saved(r.at.seen)
	}
	return nil
}

// Position returns the position up to which every event has taken effect: at or after the saved checkpoint. It is 0
// before the first Run.
func (r *Replay) Position() int64 { return r.at.seen }

func (r *Replay) reportFolded(events, documents int) {
	if r.Folded != nil {
		r.Folded(events, documents)
	}
}

func (r *Replay) reportCounted(events int) {
	if r.Counted != nil && events != 0 {
		r.Counted(events)
	}
}
