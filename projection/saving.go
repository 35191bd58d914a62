package projection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// What was folded waits so long for more of the same documents to come, while there is more to fold: a document that many
// events touch is written once for all of them. It waits longer where saving takes long, which is then a fifth of the
// time at most.
const (
	saveInterval    = time.Second
	longestInterval = 10 * time.Second
	foldingASave    = 4 // times as long as a save takes
)

// readingsASave bounds the events of one save, whatever time they take: so many times those of a reading.
const readingsASave = 8

// errAgain says that what was folded was more than one save can have: nothing of it was saved, and it is to be folded
// again, less at a time.
var errAgain = errors.New("the batch is folded again, in parts")

// gathered is what was folded since the last save began.
type gathered struct {
	earlier int64         // how many there were before
	changed []string      // ids of documents, each once
	weight  int           // of those documents
	events  int           // that took effect, also those that changed nothing
	upTo    int64         // the checkpoint that they lead to
	only    *domain.Event // the event, where it is one alone
	before  held          // what the document changed last was before
	since   time.Time     // when the first change came

	parked  []domain.ParkedDocument // set aside since then
	waiting []domain.ParkedEvent    // events for these, and for those that were parked before
}

// number tells what was gathered from what is gathered at other times: 1, 2, 3 ...
func (g *gathered) number() int64 { return g.earlier + 1 }

// saving is a save that is under way beside folding.
type saving struct {
	done      chan struct{}
	number    int64
	from, to  int64
	events    int
	only      *EventError // where one event alone is saved: what is wrong when its document is not kept
	parked    []domain.ParkedDocument
	waiting   []domain.ParkedEvent
	documents []unsaved
	batch     drivers.Batch
	took      time.Duration
	err       error
}

// unsaved is a document as it is to be saved, whatever becomes of it meanwhile.
type unsaved struct {
	id string
	held
}

// due reports whether what was gathered should be saved although more is to come.
func (r *Replay) due() bool {
	g := &r.gathered
	switch {
	case r.at.atOnce > 0:
		return g.events >= r.at.atOnce
	case len(g.waiting) >= waitingASave:
		return true
	case len(g.changed) == 0:
		return false
	}
	return g.weight >= r.Limits.DocumentBytes/2 || g.events >= readingsASave*r.Limits.Events ||
		time.Since(g.since) >= min(max(saveInterval, foldingASave*r.saveTook), longestInterval)
}

// push begins to save what was gathered, when the save before has come to its end. From then on that is what later
// events go on from, as if it were saved: where it fails, all of it is forgotten.
func (r *Replay) push(ctx context.Context) error {
	if err := r.await(); err != nil {
		return err
	}
	g := r.gathered
	r.gathered = gathered{earlier: g.number()}
	if g.events == 0 && g.upTo == 0 {
		return nil
	}
	if len(g.changed) == 0 && len(g.waiting) == 0 {
		r.at.seen = max(r.at.seen, g.upTo)
		r.folded(g.events, 0)
		return nil
	}
	s := &saving{
		done: make(chan struct{}), number: g.number(), from: r.at.stored, to: g.upTo, events: g.events,
		parked: g.parked, waiting: g.waiting, documents: make([]unsaved, len(g.changed)),
	}
	if g.only != nil && len(g.changed) == 1 {
		s.only = r.Fold.blame(&Event{Event: g.only}, r.Fold.where(g.only.Type), nil)
		s.only.DocumentID = g.changed[0]
		s.only.tellBefore(r.Fold, &g.before)
	}
	for i, id := range g.changed {
		h := r.known.documents[id]
		s.documents[i] = unsaved{id, *h}
		h.there = true
	}
	r.saving = s
	go func() {
		defer close(s.done)
		if s.batch, s.err = r.Fold.batch(ctx, s); s.err == nil {
			s.err = r.keepWaiting(ctx, s)
		}
		if s.err == nil {
			began := time.Now()
			s.err = r.Driver.Save(ctx, r.Build, r.Tenant, s.batch)
			s.took = time.Since(began)
		}
	}()
	return nil
}

// await waits for the save that is under way. After an error nothing is held that is not saved.
func (r *Replay) await() error {
	s := r.saving
	if s == nil {
		return nil
	}
	<-s.done
	r.saving = nil
	err := s.err
	if err == nil {
		r.wasSaved(s)
		return nil
	}
	r.count(-s.events)
	r.forget()
	if errors.Is(err, drivers.ErrStale) {
		r.at.known = false
	}
	if errors.Is(err, errAgain) {
		return err
	}
	if errors.Is(err, drivers.ErrTimedOut) && s.events > 1 {
		r.at.atOnce = max(1, s.events/2)
		return errAgain
	}
	if unfit(err) {
		if s.only == nil {
			r.at.atOnce = max(1, s.events/2)
			return errAgain
		}
		s.only.Err = err
		return r.refuse(s.only)
	}
	return fmt.Errorf("save build %d of projection %q at position %d: %w", r.Build.Number, r.Build.Name, s.to, err)
}

// forget drops whatever is held of documents, and of what is set aside.
func (r *Replay) forget() {
	r.count(-r.gathered.events)
	r.known, r.gathered, r.aside = known{}, gathered{earlier: r.gathered.number()}, nil
}

func (r *Replay) wasSaved(s *saving) {
	r.at.saved(s.to)
	if r.at.refused != nil && r.at.refused.Event.Position <= s.to {
		r.at.refused = nil
	}
	r.numbered, r.saveTook = s.number, s.took
	if r.at.atOnce > 0 && s.took < growingSave {
		// What was too much is behind it, or is met again.
		if r.at.atOnce *= 2; r.at.atOnce >= careful {
			r.at.atOnce = 0
		}
	}
	most := r.Limits.DocumentBytes
	if r.Fold.Maps() {
		r.known.whole, most = false, 0 // nothing depends on a record
	}
	r.known.shrink(most, r.numbered)
	bytes := 0
	for i := range s.batch.Upserts {
		bytes += len(s.batch.Upserts[i].Data)
	}
	if n := len(s.batch.Upserts); n > 0 {
		r.documentBytes = max(1, bytes/n, (r.documentBytes+bytes/n)/2) // it grows at once and shrinks slowly
	}
	if r.Saved != nil {
		r.Saved(s.batch.Upserts)
	}
	r.folded(s.events, len(s.batch.Upserts)+len(s.batch.Deletes))
}

// growingSave is below which time a save of a bounded number of events may be followed by one of twice as many. It is well
// below half of what a save may take, so that a database that is merely slow is not asked for too much again.
const growingSave = 5 * time.Second

// careful is from how many events on a save is no longer bounded by their number.
const careful = 1 << 16

// flush saves what was gathered, and returns when nothing is unsaved.
func (r *Replay) flush(ctx context.Context) error {
	if err := r.push(ctx); err != nil {
		return err
	}
	return r.await()
}

// finish comes behind everything that a Replay does: it waits for the save that is under way and, unless what went wrong
// was a save, saves what was folded before it. It returns the first error.
func (r *Replay) finish(ctx context.Context, err error) error {
	if flushErr := r.flush(ctx); err == nil {
		return flushErr
	}
	return err
}

// unfitError is about a document that cannot be written.
type unfitError struct{ err error }

func (e *unfitError) Error() string { return e.err.Error() }
func (e *unfitError) Unwrap() error { return e.err }

// unfit reports whether a document cannot be kept: it is no document, or is beyond what the database takes, in size or in
// depth.
func unfit(err error) bool {
	_, cannotBeWritten := errors.AsType[*unfitError](err)
	return cannotBeWritten || domain.IsCode(err, domain.CodeTooLarge) || domain.IsCode(err, domain.CodeInvalidJSON)
}

// batch makes of documents what a driver saves, those that are new there first.
func (f *Fold) batch(ctx context.Context, s *saving) (drivers.Batch, error) {
	// In the order of their ids neighbours in an index are written one after the other: a fifth less work for PostgreSQL.
	slices.SortFunc(s.documents, func(a, b unsaved) int { return strings.Compare(a.id, b.id) })
	data := make([]json.RawMessage, len(s.documents))
	failed := make([]error, workersFor(ctx, len(s.documents)))
	chunk := (len(s.documents) + len(failed) - 1) / len(failed)
	parallel(len(failed), func(worker int) {
		for i := worker * chunk; i < min(len(s.documents), (worker+1)*chunk) && ctx.Err() == nil; i++ {
			if data[i], failed[worker] = f.text(&s.documents[i].held); failed[worker] != nil {
				return
			}
		}
	})
	if err := errors.Join(failed...); err != nil {
		return drivers.Batch{}, err
	}
	if ctx.Err() != nil {
		return drivers.Batch{}, context.Cause(ctx)
	}
	batch := drivers.Batch{From: s.from, To: s.to, Upserts: make([]domain.Document, 0, len(s.documents))}
	var before []domain.Document
	for i := range s.documents {
		d := &s.documents[i]
		switch document := (domain.Document{ID: d.id, Version: d.version, Data: data[i]}); {
		case data[i] == nil:
			// Also one that was not there: somebody slower may be about to write it.
			batch.Deletes = append(batch.Deletes, drivers.Deletion{ID: d.id, Version: d.version})
		case d.there:
			before = append(before, document)
		default:
			batch.Upserts = append(batch.Upserts, document)
		}
	}
	batch.New = len(batch.Upserts)
	batch.Upserts = append(batch.Upserts, before...)
	s.documents = nil // their values can go while this is saved
	return batch, nil
}

// text is a document as it is stored; nil: there is none.
func (f *Fold) text(h *held) (json.RawMessage, error) {
	if h.value == nil {
		return h.data, nil
	}
	data, err := f.handler.Encode(h.value)
	if err == nil {
		err = f.checkDocument(data)
	}
	if err != nil {
		return nil, &unfitError{err}
	}
	return data, nil
}
