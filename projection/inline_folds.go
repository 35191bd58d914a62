package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/upcasting"
)

// InlineFolds fold what is appended to one tenant's log, batch by batch. Only one goroutine may use them at a time.
//
// They remember documents as of the head: loaded when the log was known to be there, or saved by the batch that led
// there. Folds since Begin work on copies, so a batch that is not committed leaves no trace.
type InlineFolds struct {
	in            *Inline
	tenant        domain.TenantID
	builds        []*inlineBuild
	head          int64
	to            int64 // the position after the last saved batch
	mustLoad      bool  // documents must be loaded
	atHead        bool  // the builds are certainly at the head
	mustCheckHead bool  // whether they are must be checked
	kept          int64 // bytes of remembered documents

	upcasters *upcasting.Set // in force when the builds were opened; after a change they are opened again
}

// inlineBuild is one of the builds.
type inlineBuild struct {
	fold      *folding.Fold
	build     domain.Build
	driver    drivers.Transactional
	immutable bool // a document in memory never changes, so it can be kept

	known   map[string]*inlineDocument // as stored at the head
	folded  map[string]*inlineDocument // as folded since Begin
	missing map[string]struct{}        // not known
	targets []inlineTarget             // of the events of a request
}

// inlineTarget is a document of an event.
type inlineTarget struct {
	folding.Target
	event int // index of the event
}

// inlineDocument is a document at some point of a batch.
type inlineDocument struct {
	data    []byte        // nil: there is no document, or value is not encoded yet
	value   folding.Value // nil: there is no document, or data is not decoded yet
	version int64
	last    *folding.Event // the last event that changed it
	request int64          // the first position of the request that touched it last, see undo
}

// Begin begins a batch after head. It forgets what was folded and not committed.
func (f *InlineFolds) Begin(head int64) {
	if head != f.head {
		f.head = head
		f.Forget()
	}
	f.mustLoad, f.mustCheckHead = false, false
	for _, b := range f.builds {
		clear(b.folded)
		clear(b.missing)
	}
}

// Forget forgets the documents at the head, because others have appended.
func (f *InlineFolds) Forget() {
	f.atHead = false
	f.in.kept.Add(-f.kept)
	f.kept = 0
	for _, b := range f.builds {
		b.known = nil
	}
}

// Fold folds a request's events, which follow those folded since Begin. If documents are missing, it folds nothing and
// returns again: call Load, and then fold everything again. If an event cannot be folded, Fold folds nothing and
// returns a *domain.Error with domain.CodeRefused and the event's id as its place. If the events take too many steps,
// the code is domain.CodeTooCostly. If ctx ends, the state is undefined.
func (f *InlineFolds) Fold(ctx context.Context, events []domain.Event) (again bool, err error) {
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	left := maxInlineSteps
	meter := expr.MeterOf(expr.WithSpend(limited, func(steps int) {
		if left -= steps; left < 0 {
			cancel(errInlineSteps)
		}
	}))
	own := make([]folding.Event, len(events))
	for i := range events {
		events[i].Data, events[i].Metadata = normalizeNumbers(events[i].Data), normalizeNumbers(events[i].Metadata)
		own[i] = folding.NewEvent(&events[i], meter)
	}
	newest, faults := folding.UpcastCopies(meter, f.upcasters, own)
	var undo []undoEntry
	refuse := func(b *inlineBuild, fault *folding.EventError) (bool, error) {
		if !f.atHead && limited.Err() == nil {
			// If an earlier release has appended, the documents may lack events.
			f.mustLoad, f.mustCheckHead = true, true
			return true, nil
		}
		for i := range undo {
			undo[i].restore()
		}
		if limited.Err() != nil {
			return false, context.Cause(limited)
		}
		return false, refused(b, fault)
	}
	for _, b := range f.builds {
		seen, faults := newest, faults
		if b.fold.Upcasters() == nil {
			seen, faults = own, nil
		}
		if fault := b.findTargets(seen, faults); fault != nil {
			return refuse(b, fault)
		}
		if len(b.targets) > maxInlineDocuments {
			return false, domain.Errorf(domain.CodeTooCostly, "", "nothing was appended: the events change more than %d documents of the inline projection %q; append fewer at a time, or make it async",
				maxInlineDocuments, b.build.Name)
		}
		f.mustLoad = f.mustLoad || len(b.missing) > 0
	}
	if f.mustLoad {
		return true, nil
	}
	for _, b := range f.builds {
		seen := newest
		if b.fold.Upcasters() == nil {
			seen = own
		}
		if fault := b.apply(seen, &undo); fault != nil {
			return refuse(b, fault)
		}
	}
	return false, nil
}

// maxInlineSteps is how many steps the events of one request may take: the tenant's other appends wait meanwhile.
const maxInlineSteps = 5_000_000

var errInlineSteps = domain.Errorf(domain.CodeTooCostly, "",
	"nothing was appended: folding the events into the inline projections exceeds %d steps; append fewer at a time, or make the projections async", maxInlineSteps)

// maxInlineDocuments is how many documents of a build the events of one request may change, an event counted once for
// each of its documents. A batch that has so many takes no further request.
const maxInlineDocuments = 2000

// Full reports whether the batch changes so many documents that further requests should wait for the next one.
func (f *InlineFolds) Full() bool {
	return slices.ContainsFunc(f.builds, func(b *inlineBuild) bool { return len(b.folded)+len(b.missing) >= maxInlineDocuments })
}

// findTargets finds the documents of a request's events, and which of them are not known. It stops after more than
// maxInlineDocuments. faults are the faults of upcasting, by index of the event.
func (b *inlineBuild) findTargets(events []folding.Event, faults map[int]*folding.EventError) *folding.EventError {
	b.targets = b.targets[:0]
	var found []folding.Target
	for i := range events {
		if !b.fold.Sees(events[i].Event) || len(b.targets) > maxInlineDocuments {
			continue
		}
		fault := faults[i]
		if fault == nil {
			found, fault = b.fold.Targets(found[:0], &events[i])
		}
		if fault != nil {
			return fault
		}
		for _, target := range found {
			b.targets = append(b.targets, inlineTarget{target, i})
		}
	}
	if b.fold.Maps() || len(b.targets) > maxInlineDocuments {
		return nil
	}
	for _, target := range b.targets {
		if b.folded[target.ID] != nil || b.known[target.ID] != nil {
			continue
		}
		if b.missing == nil {
			b.missing = make(map[string]struct{})
		}
		b.missing[target.ID] = struct{}{}
	}
	return nil
}

// undoEntry is a document as it was before a request.
type undoEntry struct {
	build   *inlineBuild
	id      string
	before  inlineDocument
	existed bool
}

func (u *undoEntry) restore() {
	if u.existed {
		*u.build.folded[u.id] = u.before
		return
	}
	delete(u.build.folded, u.id)
}

// apply folds a request's events and encodes the documents: one that cannot be stored is this request's fault. A
// handler may change documents in memory. So only the encoded form is kept between requests, unless the handler is
// known not to change them.
func (b *inlineBuild) apply(events []folding.Event, undo *[]undoEntry) *folding.EventError {
	if b.folded == nil {
		b.folded = make(map[string]*inlineDocument)
	}
	first := len(*undo)
	request := events[0].Position
	for _, target := range b.targets {
		id, event := target.ID, events[target.event].Into(target.Target)
		document, there := b.folded[id]
		if !there {
			document = &inlineDocument{}
			if known := b.known[id]; known != nil {
				document.data, document.value, document.version = known.data, known.value, known.version
			}
		}
		if document.request != request {
			*undo = append(*undo, undoEntry{b, id, *document, there})
			document.request = request
		}
		value := document.value
		if value == nil && !b.fold.Maps() {
			var fault *folding.EventError
			if value, fault = b.fold.Decode(document.data, event); fault != nil {
				return b.blame(fault, document, id)
			}
		}
		value, fault := b.fold.Next(value, event)
		if fault != nil {
			return b.blame(fault, b.beforeRequest(*undo, id), id)
		}
		if value == nil && b.fold.Maps() {
			if !there {
				*undo = (*undo)[:len(*undo)-1] // the event makes no record, and the batch had none before
			}
			continue
		}
		b.folded[id] = document
		document.data, document.value, document.version, document.last = nil, value, event.Position, event
	}
	for i := first; i < len(*undo); i++ {
		id := (*undo)[i].id
		document := b.folded[id]
		if document == nil || document.value == nil || document.data != nil {
			continue
		}
		data, fault := b.fold.Encode(document.value, document.last)
		if fault != nil {
			return b.blame(fault, &(*undo)[i].before, id)
		}
		document.data = data
		if !b.immutable {
			document.value = nil
		}
		document.last = nil
	}
	return nil
}

// beforeRequest returns a document that a request changes as it was before the request.
func (b *inlineBuild) beforeRequest(undo []undoEntry, id string) *inlineDocument {
	return &undo[slices.IndexFunc(undo, func(u undoEntry) bool { return u.build == b && u.id == id })].before
}

// blame adds the document to the fault.
func (b *inlineBuild) blame(fault *folding.EventError, before *inlineDocument, id string) *folding.EventError {
	fault.DocumentID = id
	fault.SetBefore(before.data)
	return fault
}

// refused is the client's error for an event that cannot be folded.
func refused(b *inlineBuild, fault *folding.EventError) error {
	message := fmt.Sprintf("nothing was appended: the projection %q is inline, and cannot fold the event %s of %s: %s: %s", b.build.Name,
		fault.Event.Type, folding.Clip(fault.Event.Stream), fault.Where, fault.Failure().Message)
	if fault.Expression != "" {
		message += "; expression: " + folding.Cut(fault.Expression, folding.MaxShown)
	}
	if fault.DocumentID != "" {
		message += fmt.Sprintf("; document %q", folding.Clip(fault.DocumentID))
	}
	return domain.Errorf(domain.CodeRefused, fault.Event.ID.String(), "%s", message)
}

// Load loads the documents that Fold was missing, as they are at the head. current is false if a build no longer exists
// or is not at the head: call Open again. If the documents are too large together, the error is a *domain.Error with
// domain.CodeTooCostly.
//
// The driver reads them on its own connection, before the append's transaction. The result is the build at the head,
// for three reasons. The build was at the head when the log was. An inline build changes only in the transaction that
// moves the head. And the append moves the head only if it has not changed since.
func (f *InlineFolds) Load(ctx context.Context) (current bool, err error) {
	type loaded struct {
		documents  []domain.Document
		checkpoint int64
		err        error
	}
	all := make([]loaded, len(f.builds))
	load := func(i int) {
		b := f.builds[i]
		if f.mustCheckHead {
			if all[i].checkpoint, all[i].err = b.driver.Checkpoint(ctx, b.build, f.tenant); all[i].err != nil {
				return
			}
		}
		if len(b.missing) > 0 {
			ids := make([]string, 0, len(b.missing))
			for id := range b.missing {
				ids = append(ids, id)
			}
			all[i].documents, all[i].err = b.driver.Load(ctx, b.build, f.tenant, ids)
		}
	}
	var others sync.WaitGroup
	for i := 1; i < len(f.builds); i++ {
		if f.mustCheckHead || len(f.builds[i].missing) > 0 {
			others.Go(func() { load(i) })
		}
	}
	load(0)
	others.Wait()
	for i, b := range f.builds {
		switch {
		case errors.Is(all[i].err, drivers.ErrNoTable), all[i].err == nil && f.mustCheckHead && all[i].checkpoint != f.head:
			return false, nil
		case errors.Is(all[i].err, drivers.ErrLoadTooLarge):
			return false, domain.Errorf(domain.CodeTooCostly, "", "nothing was appended: the events change documents of the inline projection %q that have more than %d MiB together; append fewer at a time, or make it async",
				b.build.Name, drivers.MaxLoadBytes>>20)
		case all[i].err != nil:
			return false, fmt.Errorf("load the documents of build %d of the inline projection %q: %w", b.build.Number, b.build.Name, all[i].err)
		}
	}
	f.atHead = f.atHead || f.mustCheckHead
	for i, b := range f.builds {
		if b.known == nil {
			b.known = make(map[string]*inlineDocument)
		}
		for j := range all[i].documents {
			document := &all[i].documents[j]
			b.known[document.ID] = &inlineDocument{data: document.Data, version: document.Version}
			f.keep(len(document.ID) + len(document.Data))
		}
		for id := range b.missing {
			if b.known[id] == nil {
				b.known[id] = &inlineDocument{}
				f.keep(len(id))
			}
		}
	}
	return true, nil
}

// documentOverhead is roughly what a remembered document costs beyond its text.
const documentOverhead = 200

func (f *InlineFolds) keep(bytes int) {
	f.kept += int64(bytes + documentOverhead)
	f.in.kept.Add(int64(bytes + documentOverhead))
}

// Save returns the statements that save the batch in the transaction that appends it. They move each build's checkpoint
// from the head to to, the position after the batch.
func (f *InlineFolds) Save(to int64) ([]domain.Statement, error) {
	statements := make([]domain.Statement, 0, len(f.builds))
	for _, b := range f.builds {
		batch := drivers.Batch{From: f.head, To: to}
		for id, document := range b.folded {
			switch {
			case document.data != nil:
				batch.Upserts = append(batch.Upserts, domain.Document{ID: id, Version: document.version, Data: document.data})
			case b.known[id] != nil && b.known[id].data != nil:
				batch.Deletes = append(batch.Deletes, drivers.Deletion{ID: id, Version: document.version})
			}
		}
		some, err := b.driver.SaveIn(b.build, f.tenant, batch)
		if err != nil {
			return nil, fmt.Errorf("save build %d of the inline projection %q: %w", b.build.Number, b.build.Name, err)
		}
		statements = append(statements, some...)
	}
	f.to = to
	return statements, nil
}

// Committed makes the saved batch the new head.
func (f *InlineFolds) Committed() {
	f.head, f.atHead = f.to, true
	for _, b := range f.builds {
		for id, document := range b.folded {
			if b.known == nil {
				b.known = make(map[string]*inlineDocument)
			}
			b.known[id] = &inlineDocument{data: document.data, value: document.value, version: document.version}
			f.keep(len(id) + 2*len(document.data))
		}
		clear(b.folded)
	}
	// Replaced documents are still counted until everything is forgotten.
	if f.kept > maxKeptBytesPerTenant || f.in.kept.Load() > maxKeptBytes {
		proven := f.atHead
		f.Forget()
		f.atHead = proven
	}
}
