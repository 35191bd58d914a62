package projection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection/folding"
)

// While there is more to fold, folded documents wait this long for further changes: a document that many events touch
// is written once for all of them. They wait longer if saving takes long, so that saving takes at most a fifth of the
// time.
const (
	saveInterval    = time.Second
	longestInterval = 10 * time.Second
	foldingPerSave  = 4 // times as long as a save takes

	// unreadInterval is for builds that nobody reads yet: what a worker that is killed has to fold again.
	unreadInterval = 30 * time.Second
)

// readingsPerSave limits the events of one save, however long they take, to this many readings.
const readingsPerSave = 16

// errRefold means that a batch was too large to save: nothing of it was saved, and it is folded again in smaller parts.
var errRefold = errors.New("the batch is folded again, in parts")

// pendingSave is what was folded since the last save began.
type pendingSave struct {
	earlier int64     // how many pending saves came before
	changed []string  // ids of documents, each once
	weight  int       // of those documents
	events  int       // that took effect, including those that changed nothing
	upTo    int64     // the checkpoint after them
	only    onlyEvent // if there is only one event
	since   time.Time // when the first change came

	parked  []domain.ParkedDocument // since then
	waiting []domain.ParkedEvent    // events for these and for documents parked before
}

// number identifies the pending save: 1, 2, 3 ...
func (g *pendingSave) number() int64 { return g.earlier + 1 }

// onlyEvent is the one event of a save, which is at fault if the save is refused.
type onlyEvent struct {
	event  *domain.Event    // nil: there are none or several
	before []cachedDocument // the changed documents before the event
}

// saving is a save that runs while folding continues.
type saving struct {
	done      chan struct{}
	number    int64
	from, to  int64
	events    int
	seeded    int // of a fill: documents that began from seeds
	only      onlyEvent
	changed   []string // ids of documents
	parked    []domain.ParkedDocument
	waiting   []domain.ParkedEvent
	documents []unsavedDocument
	batch     drivers.Batch
	took      time.Duration
	err       error
}

// unsavedDocument is a snapshot of a document to be saved.
type unsavedDocument struct {
	id string
	cachedDocument
}

// saveIsDue reports whether to save what is pending although there is more to fold.
func (r *Replay) saveIsDue() bool {
	g := &r.pending
	switch {
	case r.at.maxPerSave > 0:
		return g.events >= r.at.maxPerSave
	case len(g.waiting) >= waitingPerSave:
		return true
	case len(g.changed) == 0:
		return false
	}
	most := r.Limits.DocumentBytes / 2
	if r.Unread {
		if g.weight < most {
			return time.Since(g.since) >= unreadInterval
		}
		r.compact()
		return g.weight >= r.unsavedLimit() // less: compacting has made room
	}
	return g.weight >= most || g.events >= readingsPerSave*r.Limits.Events ||
		time.Since(g.since) >= min(max(saveInterval, foldingPerSave*r.saveTook), longestInterval)
}

// unsavedLimit is how much unsaved documents of an unread build may weigh in their stored form.
func (r *Replay) unsavedLimit() int { return r.Limits.DocumentBytes / 2 / 8 * 7 }

// compact turns the documents in memory into their stored form, which takes a fraction of the memory and is what a save
// needs. One that has no stored form stays as it is: its save finds the event responsible.
func (r *Replay) compact() {
	var values []*cachedDocument
	for _, h := range r.memory.documents {
		if h.value != nil {
			values = append(values, h)
		}
	}
	n := min(runtime.GOMAXPROCS(0), max(1, len(values)/chainsAtOnce))
	chunk := (len(values) + n - 1) / n
	parallel(n, func(worker int) {
		for _, h := range values[min(len(values), worker*chunk):min(len(values), (worker+1)*chunk)] {
			if data, err := h.encode(r.Fold); err == nil {
				h.data, h.value = data, nil
			}
		}
	})
	r.memory.recomputeWeight()
	r.pending.weight = 0
	for _, id := range r.pending.changed {
		r.pending.weight += r.memory.documents[id].weight(id)
	}
}

// startSave starts to save what is pending, after the previous save has ended. Later events build on it as if it were
// saved: if the save fails, all of it is forgotten.
func (r *Replay) startSave(ctx context.Context) error {
	if err := r.awaitSave(); err != nil {
		return err
	}
	g := r.pending
	r.pending = pendingSave{earlier: g.number()}
	if g.events == 0 && g.upTo == 0 {
		return nil
	}
	if len(g.changed) == 0 && len(g.waiting) == 0 {
		r.at.seen = max(r.at.seen, g.upTo)
		r.reportFolded(g.events, 0)
		return nil
	}
	s := &saving{
		done: make(chan struct{}), number: g.number(), from: r.at.stored, to: g.upTo, events: g.events,
		only: g.only, changed: g.changed, parked: g.parked, waiting: g.waiting, documents: make([]unsavedDocument, len(g.changed)),
	}
	for i, id := range g.changed {
		h := r.memory.documents[id]
		s.documents[i] = unsavedDocument{id, *h}
		h.exists = true
	}
	r.saving = s
	go func() {
		defer close(s.done)
		if s.batch, s.err = s.toBatch(ctx, r.Fold); s.err == nil {
			s.err = r.saveWaiting(ctx, s)
		}
		if s.err == nil {
			began := time.Now()
			s.err = r.Driver.Save(ctx, r.Build, r.Tenant, s.batch)
			s.took = time.Since(began)
		}
	}()
	return nil
}

// awaitSave waits for the running save. After an error, no unsaved documents are held.
func (r *Replay) awaitSave() error {
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
	r.reportCounted(-s.events)
	r.forgetUnsaved()
	r.at.ahead = false // this save may have been committed
	if errors.Is(err, drivers.ErrStale) {
		r.at.known = false
	}
	if errors.Is(err, errRefold) {
		return err
	}
	if errors.Is(err, drivers.ErrTimedOut) && s.events > 1 {
		r.at.maxPerSave = max(1, s.events/2)
		return errRefold
	}
	if unstorable(err) {
		fault := r.blameRefused(s)
		if fault == nil {
			r.at.maxPerSave = max(1, s.events/2)
			return errRefold
		}
		return r.handleRefusal(fault)
	}
	return fmt.Errorf("save build %d of projection %q at position %d: %w", r.Build.Number, r.Build.Name, s.to, err)
}

// blameRefused returns the fault of a save's only event, one of whose documents the database refuses. It returns nil if
// the save has several events. If the error does not name the document, that is the largest: if it was another, the
// next save shows it.
func (r *Replay) blameRefused(s *saving) *folding.EventError {
	if s.only.event == nil || len(s.changed) == 0 {
		return nil
	}
	id := refusedDocument(s.err)
	if !slices.Contains(s.changed, id) {
		id = s.changed[0]
		largest := 0
		for i := range s.batch.Upserts {
			if d := &s.batch.Upserts[i]; len(d.Data) > largest {
				id, largest = d.ID, len(d.Data)
			}
		}
	}
	fault := r.Fold.Blame(&folding.Event{Event: s.only.event}, r.Fold.Where(s.only.event.Type), s.err)
	fault.DocumentID = id
	addDocumentBefore(fault, r.Fold, &s.only.before[slices.Index(s.changed, id)])
	return fault
}

// forgetUnsaved drops the documents in memory and the exclusions.
func (r *Replay) forgetUnsaved() {
	r.reportCounted(-r.pending.events)
	r.memory, r.pending, r.exclusions = documentMemory{}, pendingSave{earlier: r.pending.number()}, nil
}

func (r *Replay) wasSaved(s *saving) {
	r.at.saved(s.to)
	if r.at.refused != nil && r.at.refused.Event.Position <= s.to {
		r.at.refused = nil
	}
	r.numbered, r.saveTook = s.number, s.took
	if r.at.maxPerSave > 0 && s.took < fastSave {
		// The part that was too much is now saved, or fails again.
		if r.at.maxPerSave *= 2; r.at.maxPerSave >= maxLimitedSave {
			r.at.maxPerSave = 0
		}
	}
	most := r.Limits.DocumentBytes
	switch {
	case r.Fold.Maps():
		r.memory.complete, most = false, 0 // no event depends on a record
	case r.Unread:
		most /= 2 // the other half is for unsaved ones, which are held until it is full
	}
	r.memory.shrink(most, r.numbered)
	r.recordDocumentSize(s.batch.Upserts)
	if r.Saved != nil {
		r.Saved(s.batch.Upserts)
	}
	r.reportFolded(s.events, len(s.batch.Upserts)+len(s.batch.Deletes))
}

// recordDocumentSize records how large documents are.
func (r *Replay) recordDocumentSize(saved []domain.Document) {
	bytes := 0
	for i := range saved {
		bytes += len(saved[i].Data)
	}
	if n := len(saved); n > 0 {
		r.documentBytes = max(1, bytes/n, (r.documentBytes+bytes/n)/2) // it grows at once and shrinks slowly
	}
}

// fastSave is the duration below which a save with a limited number of events may be followed by one of twice as
// many. It is well below half of a save's time limit, so a database that is merely slow is not overloaded again.
const fastSave = 5 * time.Second

// maxLimitedSave is the number of events from which on a save is no longer limited by number.
const maxLimitedSave = 1 << 16

// flush saves what is pending, and returns when everything is saved.
func (r *Replay) flush(ctx context.Context) error {
	if err := r.startSave(ctx); err != nil {
		return err
	}
	return r.awaitSave()
}

// finish ends the work of a Replay. It waits for the running save. Unless the failure was a save, it then saves what
// was folded before the failure. It returns the first error.
func (r *Replay) finish(ctx context.Context, err error) error {
	if flushErr := r.flush(ctx); err == nil {
		return flushErr
	}
	return err
}

// unstorableError is the error for a document that cannot be written.
type unstorableError struct {
	id  string
	err error
}

func (e *unstorableError) Error() string { return e.err.Error() }
func (e *unstorableError) Unwrap() error { return e.err }

// unstorable reports whether a document cannot be stored: it is invalid, or exceeds the database's limits in size or
// depth.
func unstorable(err error) bool {
	_, cannotBeWritten := errors.AsType[*unstorableError](err)
	return cannotBeWritten || domain.IsCode(err, domain.CodeTooLarge) || domain.IsCode(err, domain.CodeInvalidJSON)
}

// refusedDocument returns the id of the document that an error says is unstorable; empty if it names none.
func refusedDocument(err error) string {
	if cannot, ok := errors.AsType[*unstorableError](err); ok {
		return cannot.id
	}
	if refused, ok := errors.AsType[*domain.Error](err); ok {
		id, _ := strings.CutPrefix(refused.Where, "document ")
		return id
	}
	return ""
}

// toBatch converts the documents to what a driver saves, new documents first.
func (s *saving) toBatch(ctx context.Context, f *folding.Fold) (drivers.Batch, error) {
	// Sorted by id, neighbors in an index are written one after the other: a fifth less work for PostgreSQL.
	slices.SortFunc(s.documents, func(a, b unsavedDocument) int { return strings.Compare(a.id, b.id) })
	data := make([]json.RawMessage, len(s.documents))
	failed := make([]error, workersFor(ctx, len(s.documents)))
	chunk := (len(s.documents) + len(failed) - 1) / len(failed)
	parallel(len(failed), func(worker int) {
		for i := worker * chunk; i < min(len(s.documents), (worker+1)*chunk) && ctx.Err() == nil; i++ {
			if data[i], failed[worker] = s.documents[i].encode(f); failed[worker] != nil {
				failed[worker] = &unstorableError{s.documents[i].id, failed[worker]}
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
			// Delete it even if it did not exist: a slower worker may be about to write it.
			batch.Deletes = append(batch.Deletes, drivers.Deletion{ID: d.id, Version: d.version})
		case d.exists:
			before = append(before, document)
		default:
			batch.Upserts = append(batch.Upserts, document)
		}
	}
	batch.New = len(batch.Upserts)
	batch.Upserts = append(batch.Upserts, before...)
	s.documents = nil // frees their values during the save
	return batch, nil
}

// addDocumentBefore adds the document before the event to a fault.
func addDocumentBefore(fault *folding.EventError, f *folding.Fold, was *cachedDocument) {
	if text, err := was.encode(f); err == nil {
		fault.SetBefore(text)
	}
}

// encode returns a document in stored form; nil if there is none.
func (h *cachedDocument) encode(f *folding.Fold) (json.RawMessage, error) {
	if h.value == nil {
		return h.data, nil
	}
	return f.Text(h.value)
}
