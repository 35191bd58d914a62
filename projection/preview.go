package projection

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/upcasting"
)

// Bounds of a preview, beside what a request may cost.
const (
	MaxPreviewEvents = 1000
	maxPreviewBytes  = 8 << 20 // of the events' data and of the documents after each event
)

// PreviewQuery asks for a definition to be tried out. One of Stream, Last and Given says on which events.
type PreviewQuery struct {
	Definition domain.Definition
	Stream     string       // a stream's first events, up to MaxPreviewEvents
	Last       int          // the last so many events that the definition folds, 1 to MaxPreviewEvents
	Given      []GivenEvent // events that need not be in the log, 1 to MaxPreviewEvents
}

// GivenEvent is an event that somebody makes up. Its position is its place among those that are given, from 1, and its
// version its place in its stream.
type GivenEvent struct {
	Stream     string         // empty: "example-1"
	ID         domain.EventID // zero: made of the position, always the same
	Type       string
	Data       json.RawMessage
	Metadata   json.RawMessage // may be nil
	OccurredAt time.Time       // zero: none
	RecordedAt time.Time       // zero: OccurredAt, and where that is zero, now
}

// PreviewStep is what one event did.
type PreviewStep struct {
	Event      domain.Event    // its data as expressions see it
	DocumentID string          // empty where the event is not for the projection, or its key cannot be worked out
	Document   json.RawMessage // after the event; nil where Removed, where the event is for no document, and where it was not folded
	Removed    bool            // the event removed the document, or left none
	Fault      *EventError     // the event cannot be folded
	Parked     bool            // the event is not folded, since one before it parked its document
}

// Preview is what events make of nothing.
type Preview struct {
	Steps     []PreviewStep     // one for each event, in their order; with onError stop none behind the first fault
	Documents []domain.Document // as they are in the end, by id
}

// Preview folds events of the tenant, or given ones, by a definition that need not be any projection's, and stores nothing.
// A definition that does not compile is refused as Check does; a preview above its bounds with domain.CodeTooLarge or
// domain.CodeTooCostly. For domain.Everyone there are only given events.
func (c *Catalog) Preview(ctx context.Context, tenant domain.TenantID, q PreviewQuery) (Preview, error) {
	definition := WithDefaults(q.Definition)
	if definition.Name == "" {
		definition.Name = "preview"
	}
	ctx, end, err := c.config.Requests.Begin(ctx, tenant, "try it on fewer events")
	if err != nil {
		return Preview{}, err
	}
	defer end()
	fold, err := c.check(ctx, domain.ProjectionID{Owner: tenant, Name: definition.Name}, definition)
	switch {
	case ctx.Err() != nil:
		return Preview{}, context.Cause(ctx)
	case err != nil:
		return Preview{}, within("definition", err)
	}
	events, err := c.previewEvents(ctx, tenant, fold, q)
	if err != nil {
		return Preview{}, err
	}
	var upcasters *upcasting.Set
	if c.config.Upcasters != nil {
		if upcasters, err = c.config.Upcasters.Now(ctx, tenant); err != nil {
			return Preview{}, err
		}
	}
	return fold.Try(ctx, events, upcasters)
}

// within puts a place before that of an error.
func within(place string, err error) error {
	if e, ok := err.(*domain.Error); ok {
		moved := *e
		moved.Where = place
		if e.Where != "" {
			moved.Where += "." + e.Where
		}
		return &moved
	}
	return err
}

func (c *Catalog) previewEvents(ctx context.Context, tenant domain.TenantID, fold *Fold, q PreviewQuery) ([]domain.Event, error) {
	if tenant == domain.Everyone && len(q.Given) == 0 {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "source", "the operator has no log; give the events")
	}
	switch {
	case q.Stream != "":
		if err := domain.CheckStream("source.stream", q.Stream); err != nil {
			return nil, err
		}
		events, err := c.config.Store.ReadStream(ctx, tenant, q.Stream, domain.StreamQuery{From: 1, Limit: MaxPreviewEvents, MaxBytes: maxPreviewBytes})
		if err == nil && len(events) == 0 {
			err = domain.Errorf(domain.CodeNotFound, "source.stream", "there is no stream %q", clip(q.Stream))
		}
		return domain.WithData(events), err
	case q.Last != 0:
		if q.Last < 1 || q.Last > MaxPreviewEvents {
			return nil, domain.Errorf(domain.CodeInvalidRequest, "source.last", "%d events were asked for; ask for 1 to %d", q.Last, MaxPreviewEvents)
		}
		events, err := c.config.Store.ReadLog(ctx, tenant, domain.LogQuery{
			Limit: q.Last, MaxBytes: maxPreviewBytes, Direction: domain.Backward,
			Categories: fold.definition.Source.Categories, Types: fold.types,
		})
		slices.Reverse(events)
		return domain.WithData(events), err
	}
	return GivenEvents("source.events", q.Given)
}

// GivenEvents makes a log of events that somebody made up; where is their place in the request, for errors.
func GivenEvents(where string, given []GivenEvent) ([]domain.Event, error) {
	if len(given) == 0 || len(given) > MaxPreviewEvents {
		return nil, domain.Errorf(domain.CodeInvalidRequest, where, "there are %d events; give 1 to %d", len(given), MaxPreviewEvents)
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	versions := make(map[string]int64)
	events := make([]domain.Event, len(given))
	for i, g := range given {
		at := fmt.Sprintf("%s[%d]", where, i)
		e := domain.Event{
			ID: g.ID, Stream: cmp.Or(g.Stream, "example-1"), Type: g.Type, Position: int64(i + 1), Data: g.Data, Metadata: g.Metadata,
			OccurredAt: g.OccurredAt, RecordedAt: g.RecordedAt,
		}
		if err := domain.CheckStream(at+".stream", e.Stream); err != nil {
			return nil, err
		}
		if err := domain.CheckType(at+".type", e.Type); err != nil {
			return nil, err
		}
		for part, text := range map[string]json.RawMessage{"data": e.Data, "metadata": e.Metadata} {
			if part == "metadata" && text == nil {
				continue
			}
			if err := domain.CheckJSON(text); err != nil {
				return nil, domain.Errorf(domain.CodeInvalidJSON, at+"."+part, "%s", err)
			}
		}
		if e.ID.IsZero() {
			e.ID = domain.DeriveEventID("given", fmt.Sprint(e.Position))
		}
		if e.RecordedAt.IsZero() {
			e.RecordedAt = now
			if !e.OccurredAt.IsZero() {
				e.RecordedAt = e.OccurredAt
			}
		}
		versions[e.Stream]++
		e.Version = versions[e.Stream]
		events[i] = e
	}
	return events, nil
}

// Try folds events, in their order and from nothing, in memory, after they went through upcasters (nil: none). The error is
// ctx's cause, or domain.CodeTooLarge where the steps come to more than 8 MiB.
func (f *Fold) Try(ctx context.Context, events []domain.Event, upcasters *upcasting.Set) (p Preview, err error) {
	err = budget.Work(ctx, func() error {
		p, err = f.try(expr.MeterOf(ctx), events, upcasters)
		return err
	})
	if err != nil {
		return Preview{}, err
	}
	return p, nil
}

func (f *Fold) try(meter *expr.Meter, events []domain.Event, upcasters *upcasting.Set) (Preview, error) {
	if _, raw := f.handler.(asRecorded); raw {
		upcasters = nil
	}
	t := trial{fold: f, meter: meter, upcasters: upcasters, documents: make(map[string]*tried)}
	for i := range events {
		if !meter.SpendBytes(len(events[i].Data) + len(events[i].Metadata)) {
			break
		}
		step := t.step(events[i])
		t.steps = append(t.steps, step)
		meter.SpendBytes(2 * len(step.Document)) // it was read and written
		if t.bytes += len(step.Event.Data) + len(step.Document); t.bytes > maxPreviewBytes {
			return Preview{}, domain.Errorf(domain.CodeTooLarge, "source",
				"with the event at position %d the events and the documents after them come to more than %d bytes; try it on fewer events", events[i].Position, maxPreviewBytes)
		}
		if step.Fault != nil && f.definition.OnError != domain.OnErrorPark {
			break
		}
	}
	p := Preview{Steps: t.steps}
	for id, d := range t.documents {
		if d.data != nil {
			p.Documents = append(p.Documents, domain.Document{ID: id, Version: d.version, Data: d.data})
		}
	}
	slices.SortFunc(p.Documents, func(a, b domain.Document) int { return strings.Compare(a.ID, b.ID) })
	return p, nil
}

// trial is a fold on its way through made-up time.
type trial struct {
	fold      *Fold
	meter     *expr.Meter
	upcasters *upcasting.Set
	documents map[string]*tried
	steps     []PreviewStep
	bytes     int
}

// tried is a document of a trial.
type tried struct {
	data    json.RawMessage // nil: it is not there
	version int64
	parked  bool
}

func (t *trial) step(event domain.Event) PreviewStep {
	step := PreviewStep{Event: event}
	if !t.fold.wants(&event) {
		return step
	}
	e := Event{Event: &event, meter: t.meter}
	if step.Fault = upcast(t.meter, t.upcasters, &event); step.Fault != nil {
		return step
	}
	step.Event = event
	id, ok, fault := t.fold.key(&e)
	if step.Fault = fault; fault != nil || !ok {
		return step
	}
	step.DocumentID = id
	document := t.documents[id]
	if document == nil {
		document = &tried{}
		t.documents[id] = document
	}
	if step.Parked = document.parked; step.Parked {
		return step
	}
	after, fault := t.fold.after(document.data, &e)
	switch {
	case fault != nil:
		fault.DocumentID, fault.Before = id, document.data
		step.Fault, document.parked = fault, true
	case after == nil && t.fold.Maps():
		step.Removed = document.data == nil // an event that makes no record leaves what is there
		step.Document = document.data
	default:
		step.Document, step.Removed = after, after == nil
		document.data, document.version = after, event.Position
	}
	return step
}

// wants reports whether the event is of the definition's source and of a type that the fold is for.
func (f *Fold) wants(event *domain.Event) bool {
	categories := f.definition.Source.Categories
	return (len(categories) == 0 || slices.Contains(categories, domain.Category(event.Stream))) &&
		(f.types == nil || slices.Contains(f.types, event.Type))
}

// after returns a document as an event makes it of before, both as they are stored; nil is one that is not there.
func (f *Fold) after(before json.RawMessage, event *Event) (json.RawMessage, *EventError) {
	var doc Value
	if !f.Maps() {
		var err error
		if doc, err = f.handler.Decode(before); err != nil {
			return nil, f.blame(event, f.where(event.Type), err)
		}
	}
	after, fault := f.next(doc, event)
	if fault != nil || after == nil {
		return nil, fault
	}
	return f.encode(after, event)
}
