package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/upcasting"
)

// A live projection stores nothing: its documents are folded when somebody asks for them, from what the log has then. One
// document costs its stream's events; a list, and a document whose key says nothing of its stream, costs all events of the
// source, which is why both are bounded.

// Bounds of what one request may fold.
const (
	maxLiveEvents = 100_000
	maxLiveBytes  = 64 << 20 // of the events' data and metadata
	maxLiveWeight = 64 << 20 // of the documents in memory
	maxLiveTime   = 10 * time.Second
	livePage      = 5000 // events read at a time
	livePageBytes = 8 << 20
)

// livesAtOnce is how many requests of all tenants fold at the same time in this process: each may need the memory above.
const livesAtOnce = 4

// documentReader is what documents are read from: a driver, or a fold on request.
type documentReader interface {
	Get(ctx context.Context, build domain.Build, tenant domain.TenantID, id string) (domain.Document, bool, error)
	Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error)
	Count(ctx context.Context, build domain.Build, tenant domain.TenantID, where domain.Predicate) (int64, error)
	Explain(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (domain.Explanation, error)
}

var _ documentReader = drivers.Driver(nil)

// liveReader folds the documents of a live projection, for one request. What it has folded serves the page and the count.
type liveReader struct {
	catalog    *Catalog
	projection domain.Projection
	all        []domain.Document // nil: not folded yet
}

// Get folds one document: from its stream where that is all that it is made of.
func (l *liveReader) Get(ctx context.Context, _ domain.Build, tenant domain.TenantID, id string) (domain.Document, bool, error) {
	fold, leave, err := l.begin(ctx, tenant)
	if err != nil {
		return domain.Document{}, false, err
	}
	defer leave()
	ctx, stop := context.WithTimeoutCause(ctx, maxLiveTime, l.tooCostly("it takes longer than %s", maxLiveTime))
	defer stop()
	if fold.fold.ownStream() {
		err = fold.stream(ctx, id)
	} else {
		err = fold.log(ctx)
	}
	if err != nil {
		return domain.Document{}, false, err
	}
	return fold.document(id)
}

// Query folds all documents and picks.
func (l *liveReader) Query(ctx context.Context, _ domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	all, err := l.matching(ctx, tenant, query.Where)
	if err != nil {
		return nil, err
	}
	type placed struct {
		document domain.Document
		key      domain.SortKey
	}
	found := make([]placed, 0, len(all))
	for _, document := range all {
		key, err := domain.SortKeyOf(document, query.Order)
		if err != nil {
			return nil, fmt.Errorf("sort document %q: %w", document.ID, err)
		}
		if query.After == nil || query.After.Compare(key, query.Order) < 0 {
			found = append(found, placed{document, key})
		}
	}
	slices.SortFunc(found, func(a, b placed) int { return a.key.Compare(b.key, query.Order) })
	page := make([]domain.Document, 0, min(len(found), query.Limit))
	for i := range found[:min(len(found), query.Limit)] {
		page = append(page, found[i].document)
	}
	return query.Cut(page), nil
}

// Count folds all documents and counts.
func (l *liveReader) Count(ctx context.Context, _ domain.Build, tenant domain.TenantID, where domain.Predicate) (int64, error) {
	all, err := l.matching(ctx, tenant, where)
	return int64(len(all)), err
}

// Explain says that no database is asked.
func (l *liveReader) Explain(context.Context, domain.Build, domain.TenantID, domain.DocumentQuery) (domain.Explanation, error) {
	return domain.Explanation{Statement: fmt.Sprintf(
		"-- projection %q is live: nothing is stored. Every event of its source, at most %d of them and %d MB, is read from the log and folded; the documents are filtered and sorted in memory.",
		l.projection.Name, maxLiveEvents, maxLiveBytes>>20)}, nil
}

// matching returns the documents for which where is true; nil: all.
func (l *liveReader) matching(ctx context.Context, tenant domain.TenantID, where domain.Predicate) ([]domain.Document, error) {
	if l.all == nil {
		fold, leave, err := l.begin(ctx, tenant)
		if err != nil {
			return nil, err
		}
		defer leave()
		ctx, stop := context.WithTimeoutCause(ctx, maxLiveTime, l.tooCostly("it takes longer than %s", maxLiveTime))
		defer stop()
		if err := fold.log(ctx); err != nil {
			return nil, err
		}
		if l.all, err = fold.all(); err != nil {
			return nil, err
		}
	}
	if where == nil {
		return l.all, nil
	}
	var found []domain.Document
	for _, document := range l.all {
		matches, err := domain.Match(where, document)
		if err != nil {
			return nil, fmt.Errorf("filter document %q: %w", document.ID, err)
		}
		if matches {
			found = append(found, document)
		}
	}
	return found, nil
}

// begin waits for a place to fold in.
func (l *liveReader) begin(ctx context.Context, tenant domain.TenantID) (_ *liveFold, leave func(), err error) {
	fold, err := CompileWith(l.projection.Definition, l.catalog.config.Handlers)
	if err != nil {
		return nil, nil, err
	}
	fold = fold.Through(l.catalog.config.Upcasters)
	set, err := fold.upcasters.Now(ctx, tenant)
	if err != nil {
		return nil, nil, err
	}
	aside, err := l.catalog.config.Store.Aside(ctx, tenant, l.projection.ProjectionID, l.projection.Build, l.projection.Version)
	if err != nil {
		return nil, nil, err
	}
	select {
	case l.catalog.lives <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	return &liveFold{reader: l, tenant: tenant, fold: fold, upcasters: set, skipped: aside.Skipped}, func() { <-l.catalog.lives }, nil
}

func (l *liveReader) tooCostly(format string, args ...any) error {
	return domain.Errorf(domain.CodeTooCostly, "", "projection %q is live, so its documents are folded for each request, and this is more than a request may fold: %s. Narrow its source, or change its mode to async, which stores them",
		l.projection.Name, fmt.Sprintf(format, args...))
}

// liveFold is one folding of a log, or a stream, in memory.
type liveFold struct {
	reader    *liveReader
	tenant    domain.TenantID
	fold      *Fold
	upcasters *upcasting.Set
	skipped   []int64
	documents known
	events    int
	bytes     int
}

// stream folds the events of one stream.
func (f *liveFold) stream(ctx context.Context, stream string) error {
	source := domain.Event{Stream: stream}
	if categories := f.fold.definition.Source.Categories; len(categories) > 0 && !slices.Contains(categories, domain.Category(source.Stream)) {
		return nil
	}
	from := int64(1)
	for {
		events, err := f.reader.catalog.config.Store.ReadStream(ctx, f.tenant, stream, domain.StreamQuery{From: from, Limit: livePage, MaxBytes: livePageBytes})
		if err != nil {
			return f.why(ctx, err)
		}
		if len(events) == 0 {
			return nil
		}
		from = events[len(events)-1].Version + 1
		events = slices.DeleteFunc(events, func(e domain.Event) bool { return !f.fold.wants(&e) })
		if err := f.add(ctx, events); err != nil {
			return err
		}
	}
}

// log folds all events of the source that the log has now.
func (f *liveFold) log(ctx context.Context) error {
	head, err := f.reader.catalog.config.Store.Head(ctx, f.tenant)
	if err != nil {
		return f.why(ctx, err)
	}
	for from := int64(1); from <= head.Position; {
		events, err := f.reader.catalog.config.Store.ReadLog(ctx, f.tenant, domain.LogQuery{
			From: from, To: head.Position, Limit: livePage, MaxBytes: livePageBytes,
			Categories: f.fold.definition.Source.Categories, Types: f.fold.types,
		})
		if err != nil {
			return f.why(ctx, err)
		}
		if len(events) == 0 {
			return nil
		}
		from = events[len(events)-1].Position + 1
		if err := f.add(ctx, events); err != nil {
			return err
		}
	}
	return nil
}

// why is the reason for an error, where that is that time is up.
func (f *liveFold) why(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// add folds events, in their order.
func (f *liveFold) add(ctx context.Context, events []domain.Event) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f.events += len(events)
	for i := range events {
		f.bytes += len(events[i].Data) + len(events[i].Metadata)
	}
	switch {
	case f.events > maxLiveEvents:
		return f.reader.tooCostly("it has more than %d events", maxLiveEvents)
	case f.bytes > maxLiveBytes:
		return f.reader.tooCostly("its events come to more than %d MB", maxLiveBytes>>20)
	}
	if len(f.skipped) > 0 {
		events = slices.DeleteFunc(events, func(e domain.Event) bool {
			_, skipped := slices.BinarySearch(f.skipped, e.Position)
			return skipped
		})
	}
	if len(events) == 0 {
		return nil
	}
	p := f.fold.prepare(domain.Reading{Events: events, Head: events[len(events)-1].Position}, domain.LogQuery{Limit: len(events) + 1, MaxBytes: maxLiveBytes}, f.upcasters)
	if len(p.events) < len(events) {
		return f.reader.tooCostly("its events come to more than %d MB by their upcasters", upcastGrowth*maxLiveBytes>>20)
	}
	chains, next := f.fold.chainsOf(p.keys)
	before := make([]held, len(chains))
	var fault *EventError
	if len(p.faults) > 0 {
		fault = p.faults[0]
	}
	for i := range chains {
		before[i], _ = f.documents.get(chains[i].id)
	}
	for i, o := range f.fold.foldChains(p.events, chains, next, before) {
		if o.fault != nil {
			o.cut(f.fold, p.events, chains[i], next, &before[i])
		}
		fault = earlier(fault, earlier(o.fault, o.bad))
		if o.touched {
			f.documents.put(chains[i].id, held{version: o.version, value: o.value, data: o.data})
		}
	}
	switch {
	case fault != nil:
		return f.faulted(fault)
	case f.documents.weight > maxLiveWeight:
		return f.reader.tooCostly("its documents take more than %d MB", maxLiveWeight>>20)
	}
	return nil
}

func (f *liveFold) faulted(fault *EventError) error {
	return fmt.Errorf("%w (%w)", domain.Errorf(domain.CodeFaulted, "", "projection %q is live, and cannot be folded: %s", f.reader.projection.Name, fault), fault)
}

// document returns one of the documents, as it would be stored.
func (f *liveFold) document(id string) (domain.Document, bool, error) {
	h, _ := f.documents.get(id)
	data, err := f.fold.text(&h)
	if err != nil {
		return domain.Document{}, false, domain.Errorf(domain.CodeFaulted, "", "projection %q is live, and its document %q cannot be written: %s", f.reader.projection.Name, clip(id), err)
	}
	return domain.Document{ID: id, Version: h.version, Data: data}, data != nil, nil
}

func (f *liveFold) all() ([]domain.Document, error) {
	all := make([]domain.Document, 0, len(f.documents.documents))
	for id := range f.documents.documents {
		document, ok, err := f.document(id)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, document)
		}
	}
	return all, nil
}

// ownStream reports whether a document's id is the name of the one stream that it is made of.
func (f *Fold) ownStream() bool {
	h, ok := f.handler.(*expressions)
	return ok && h.stream
}

// skipLive is Skip of a live projection: it stands before the first event of its source that cannot be folded.
func (c *Catalog) skipLive(ctx context.Context, p domain.Projection, skip domain.SkippedEvent) (domain.SkippedEvent, error) {
	reader := &liveReader{catalog: c, projection: p}
	_, err := reader.matching(ctx, skip.Tenant, nil)
	fault, ok := errors.AsType[*EventError](err)
	switch {
	case ok && fault.Event.Position == skip.Position:
	case err != nil && !ok:
		return domain.SkippedEvent{}, err
	default:
		return domain.SkippedEvent{}, domain.Errorf(domain.CodeConflict, "position", "projection %q is live, and the event at position %d is not the first that cannot be folded", p.Name, skip.Position)
	}
	skip.EventID, skip.Message = fault.Event.ID, fault.Failure().Message
	return c.config.Store.PutSkipped(ctx, skip)
}
