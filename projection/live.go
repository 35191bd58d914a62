package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/upcasting"
)

// A live projection stores nothing: each request folds its documents from the current log. One document costs its
// stream's events. A list, or a document whose key does not determine its stream, costs all events of the source, which
// is why both are limited.

// Limits of what one request may fold, in addition to its budget.
const (
	maxLiveEvents = 100_000  // each counted once for each of its documents
	maxLiveBytes  = 64 << 20 // of the events' data and metadata
	maxLiveWeight = 64 << 20 // of the documents in memory
	livePage      = 5000     // events read at a time
	livePageBytes = 8 << 20
)

// liveReader folds the documents of a live projection for one request. Page and count share the folded documents.
type liveReader struct {
	catalog    *Catalog
	projection domain.Projection
	asOf       bool              // it is not live: a document is folded as of an earlier event
	all        []domain.Document // nil: not folded yet
}

// subject begins messages with what is folded, and why.
func (l *liveReader) subject() string {
	if l.asOf {
		return fmt.Sprintf("projection %q has documents with later events, so that a document as of its event is folded from its stream", l.projection.Name)
	}
	return fmt.Sprintf("projection %q is live, so its documents are folded for each request", l.projection.Name)
}

// advice is what to do about a fold that costs too much.
func (l *liveReader) advice() string {
	if l.asOf {
		return "use the current documents, or shorter streams"
	}
	return liveAdvice
}

// Get folds one document, from its stream alone if the key allows it.
func (l *liveReader) Get(ctx context.Context, _ domain.Build, tenant domain.TenantID, id string) (domain.Document, bool, error) {
	ctx, end, err := l.begin(ctx, tenant)
	if err != nil {
		return domain.Document{}, false, err
	}
	defer end()
	fold, err := l.fold(ctx, tenant)
	if err != nil {
		return domain.Document{}, false, budget.Cause(ctx, err)
	}
	if fold.fold.OwnStream() {
		err = fold.stream(ctx, id)
	} else {
		err = fold.log(ctx)
	}
	if err != nil {
		return domain.Document{}, false, budget.Cause(ctx, err)
	}
	var document domain.Document
	var ok bool
	err = budget.Work(ctx, func() error {
		document, ok, err = fold.document(expr.MeterOf(ctx), id)
		return err
	})
	return document, ok, err
}

// Query folds all documents and returns the page that the query asks for.
func (l *liveReader) Query(ctx context.Context, _ domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	ctx, end, err := l.begin(ctx, tenant)
	if err != nil {
		return nil, err
	}
	defer end()
	all, err := l.matching(ctx, tenant, query.Where)
	if err != nil {
		return nil, err
	}
	var page []domain.Document
	err = budget.Work(ctx, func() error {
		page, err = selectPage(ctx, all, query)
		return err
	})
	return page, err
}

// selectPage returns the page that the query asks for.
func selectPage(ctx context.Context, all []domain.Document, query domain.DocumentQuery) ([]domain.Document, error) {
	meter := expr.MeterOf(ctx)
	type placed struct {
		document domain.Document
		key      domain.SortKey
	}
	found := make([]placed, 0, len(all))
	for _, document := range all {
		if len(query.Order) > 0 && !meter.SpendBytes(decodingWeight*len(document.Data)) {
			return nil, nil // Work returns the reason
		}
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

// Count folds all documents and counts those that match.
func (l *liveReader) Count(ctx context.Context, _ domain.Build, tenant domain.TenantID, where domain.Predicate) (int64, error) {
	ctx, end, err := l.begin(ctx, tenant)
	if err != nil {
		return 0, err
	}
	defer end()
	all, err := l.matching(ctx, tenant, where)
	return int64(len(all)), err
}

// Explain says that the query reads no database.
func (l *liveReader) Explain(context.Context, domain.Build, domain.TenantID, domain.DocumentQuery) (domain.Explanation, error) {
	return domain.Explanation{Statement: fmt.Sprintf(
		"-- projection %q is live: nothing is stored. Every event of its source, at most %d of them and %d MB, is read from the log and folded; the documents are filtered and sorted in memory.",
		l.projection.Name, maxLiveEvents, maxLiveBytes>>20)}, nil
}

// decodingWeight is how many times more a document costs if a predicate or an order reads it than if it is only folded.
const decodingWeight = 4

// matching returns the documents for which where is true; nil: all. The caller has called begin.
func (l *liveReader) matching(ctx context.Context, tenant domain.TenantID, where domain.Predicate) ([]domain.Document, error) {
	if l.all == nil {
		fold, err := l.fold(ctx, tenant)
		if err != nil {
			return nil, budget.Cause(ctx, err)
		}
		if err := fold.log(ctx); err != nil {
			return nil, budget.Cause(ctx, err)
		}
		if l.all, err = fold.all(ctx); err != nil {
			return nil, err
		}
	}
	if where == nil {
		return l.all, nil
	}
	var found []domain.Document
	err := budget.Work(ctx, func() error {
		meter := expr.MeterOf(ctx)
		for _, document := range l.all {
			if !meter.SpendBytes(decodingWeight * len(document.Data)) {
				return nil // Work returns the reason
			}
			matches, err := domain.Match(where, document)
			if err != nil {
				return fmt.Errorf("filter document %q: %w", document.ID, err)
			}
			if matches {
				found = append(found, document)
			}
		}
		return nil
	})
	return found, err
}

// begin waits for a slot to fold in. The caller must call end.
func (l *liveReader) begin(ctx context.Context, tenant domain.TenantID) (_ context.Context, end func(), err error) {
	return l.catalog.config.Requests.Begin(ctx, tenant, l.subject()+"; "+l.advice())
}

// fold prepares the fold. The caller has called begin.
func (l *liveReader) fold(ctx context.Context, tenant domain.TenantID) (*liveFold, error) {
	fold, err := l.catalog.foldOf(ctx, l.projection.Definition)
	if err != nil {
		return nil, err
	}
	set, err := fold.Upcasters().Now(ctx, tenant)
	if err != nil {
		return nil, err
	}
	exclusions, err := l.catalog.config.Store.Exclusions(ctx, tenant, l.projection.ProjectionID, l.projection.Build, l.projection.Version)
	if err != nil {
		return nil, err
	}
	return &liveFold{reader: l, tenant: tenant, fold: fold, upcasters: set, exclusions: exclusions}, nil
}

// liveAdvice is the advice for a live projection that costs too much.
const liveAdvice = "narrow its source, or change its mode to async, which stores them"

func (l *liveReader) tooCostly(format string, args ...any) error {
	return domain.Errorf(domain.CodeTooCostly, "", "%s, and this is more than a request may fold: %s; %s", l.subject(), fmt.Sprintf(format, args...), l.advice())
}

// liveFold is one fold of a log or a stream in memory.
type liveFold struct {
	reader     *liveReader
	tenant     domain.TenantID
	fold       *folding.Fold
	upcasters  *upcasting.Set
	exclusions domain.Exclusions
	documents  documentMemory
	events     int // each counted once for each of its documents
	bytes      int // as recorded
	upcast     int // bytes after upcasting
}

// stream folds the events of one stream.
func (f *liveFold) stream(ctx context.Context, stream string) error {
	source := domain.Event{Stream: stream}
	if categories := f.fold.Definition().Source.Categories; len(categories) > 0 && !slices.Contains(categories, domain.Category(source.Stream)) {
		return nil
	}
	from := int64(1)
	for {
		events, err := f.reader.catalog.config.Store.ReadStream(ctx, f.tenant, stream, domain.StreamQuery{From: from, Limit: livePage, MaxBytes: livePageBytes})
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return nil
		}
		from = events[len(events)-1].Version + 1
		events = slices.DeleteFunc(events, func(e domain.Event) bool { return !f.fold.Sees(&e) })
		if err := f.add(ctx, events); err != nil {
			return err
		}
	}
}

// log folds all events of the source that the log contains now.
func (f *liveFold) log(ctx context.Context) error {
	head, err := f.reader.catalog.config.Store.Head(ctx, f.tenant)
	if err != nil {
		return err
	}
	for from := int64(1); from <= head.Position; {
		events, err := f.reader.catalog.config.Store.ReadLog(ctx, f.tenant, domain.LogQuery{
			From: from, To: head.Position, Limit: livePage, MaxBytes: livePageBytes,
			Categories: f.fold.Definition().Source.Categories, Types: f.fold.Types(),
		})
		if err != nil {
			return err
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

// add folds events, in their order.
func (f *liveFold) add(ctx context.Context, events []domain.Event) error {
	return budget.Work(ctx, func() error { return f.foldEvents(ctx, events) })
}

func (f *liveFold) foldEvents(ctx context.Context, events []domain.Event) error {
	f.events += len(events)
	for i := range events {
		f.bytes += events[i].Bytes()
	}
	switch {
	case f.events > maxLiveEvents:
		return f.reader.tooCostly("it has more than %d events", maxLiveEvents)
	case f.bytes > maxLiveBytes:
		return f.reader.tooCostly("its events come to more than %d MB", maxLiveBytes>>20)
	}
	if len(f.exclusions.Skipped) > 0 {
		events = slices.DeleteFunc(events, func(e domain.Event) bool { return f.exclusions.Skips(e.Position, "") })
	}
	for len(events) > 0 {
		// Upcasting changes events, and those that are left to the next part must not be upcast twice.
		reading := domain.Reading{Events: slices.Clone(events), Head: events[len(events)-1].Position}
		p, err := prepare(ctx, f.fold, reading, domain.LogQuery{Limit: livePage + 1, MaxBytes: livePageBytes}, f.upcasters)
		if err != nil {
			return err
		}
		if err := f.foldPrepared(ctx, p); err != nil {
			return err
		}
		events = events[countEvents(p.events):]
	}
	return nil
}

// foldPrepared folds prepared events.
func (f *liveFold) foldPrepared(ctx context.Context, p *prepared) error {
	n := countEvents(p.events)
	f.events += len(p.events) - n
	for i := range p.reading.Events[:n] {
		f.upcast += p.reading.Events[i].Bytes()
	}
	switch {
	case f.events > maxLiveEvents:
		return f.reader.tooCostly("it has more than %d events, each counted once for each of its documents", maxLiveEvents)
	case f.upcast > readingGrowth*maxLiveBytes:
		return f.reader.tooCostly("its events come to more than %d MB by their upcasters", readingGrowth*maxLiveBytes>>20)
	}
	if len(f.exclusions.SkippedBy) > 0 {
		for i := range p.keys {
			if f.exclusions.Skips(p.events[i].Position, p.keys[i]) {
				p.keys[i] = ""
			}
		}
	}
	chains, next := chainsOf(f.fold, p.keys)
	before := make([]cachedDocument, len(chains))
	var fault *folding.EventError
	if len(p.faults) > 0 {
		fault = p.faults[0]
	}
	for i := range chains {
		before[i], _ = f.documents.get(chains[i].id)
	}
	meter := expr.MeterOf(ctx)
	outcomes, err := foldChains(ctx, f.fold, meter, p.events, chains, next, before)
	if err != nil {
		return err
	}
	for i, o := range outcomes {
		if o.fault != nil {
			o.cut(f.fold, meter, p.events, chains[i], next, &before[i])
		}
		fault = earlier(fault, earlier(o.fault, o.unwritable))
		if o.touched {
			f.documents.put(chains[i].id, cachedDocument{version: o.version, value: o.value, data: o.data})
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

func (f *liveFold) faulted(fault *folding.EventError) error {
	return fmt.Errorf("%w (%w)", domain.Errorf(domain.CodeFaulted, "", "%s, and that is not possible: %s", f.reader.subject(), fault), fault)
}

// document returns one of the documents as it would be stored.
func (f *liveFold) document(meter *expr.Meter, id string) (domain.Document, bool, error) {
	h, _ := f.documents.get(id)
	data, err := h.encode(f.fold)
	meter.SpendBytes(len(data))
	if err != nil {
		return domain.Document{}, false, domain.Errorf(domain.CodeFaulted, "", "%s, and document %q cannot be written: %s", f.reader.subject(), folding.Clip(id), err)
	}
	return domain.Document{ID: id, Version: h.version, Data: data}, data != nil, nil
}

func (f *liveFold) all(ctx context.Context) ([]domain.Document, error) {
	all := make([]domain.Document, 0, len(f.documents.documents))
	err := budget.Work(ctx, func() error {
		meter := expr.MeterOf(ctx)
		for id := range f.documents.documents {
			document, ok, err := f.document(meter, id)
			if err != nil || ctx.Err() != nil {
				return err
			}
			if ok {
				all = append(all, document)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// skipLive is Skip for a live projection, which stops before the first event of its source that cannot be folded.
func (c *Catalog) skipLive(ctx context.Context, p domain.Projection, skip domain.SkippedEvent) (domain.SkippedEvent, error) {
	reader := &liveReader{catalog: c, projection: p}
	ctx, end, err := reader.begin(ctx, skip.Tenant)
	if err != nil {
		return domain.SkippedEvent{}, err
	}
	defer end()
	_, err = reader.matching(ctx, skip.Tenant, nil)
	fault, ok := errors.AsType[*folding.EventError](err)
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
