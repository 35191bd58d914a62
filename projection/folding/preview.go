package folding

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

// Limits of a preview, in addition to the request's budget.
const (
	MaxPreviewEvents = 1000
	MaxPreviewBytes  = 8 << 20 // of the events' data and of the documents after each event
)

// GivenEvent is a made-up event. Its position is its index among the given events, from 1, and its version its index in
// its stream.
type GivenEvent struct {
	Stream     string         // empty: "example-1"
	ID         domain.EventID // zero: derived from the position, always the same
	Type       string
	Data       json.RawMessage
	Metadata   json.RawMessage // may be nil
	Tags       []string
	OccurredAt time.Time // zero: none
	RecordedAt time.Time // zero: OccurredAt, or now if that is zero too
}

// PreviewStep is the effect of one event on one document.
type PreviewStep struct {
	Event      domain.Event    // its data as expressions see it
	DocumentID string          // empty if the event is not for the projection, or its keys cannot be computed
	Item       json.RawMessage // what the key gives for the document; nil: nothing
	Document   json.RawMessage // after the event; nil if Removed, if for no document, or if it was not folded
	Removed    bool            // there is no document after the event
	Fault      *EventError     // the event cannot be folded
	Parked     bool            // the event is not folded, since an earlier one parked its document
}

// Preview is the result of folding events, starting without documents.
type Preview struct {
	// Steps are the events in order, each with one step per document in the order of its keys, and at least one step.
	// With onError stop, an event with a fault has that step alone, and none follows.
	Steps     []PreviewStep
	Documents []domain.Document // the final documents, by id
}

// GivenEvents checks made-up events, and returns them as the events of a log. where is their place in the request.
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
		var err error
		if e.Tags, err = domain.CheckTags(at+".tags", slices.Clone(g.Tags)); err != nil {
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

// Try applies the upcasters (nil: none) and folds events in order, in memory, starting without documents. Its error is
// ctx's cause, or domain.CodeTooLarge if the steps exceed MaxPreviewBytes.
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
	t := previewRun{fold: f, meter: meter, upcasters: upcasters, documents: make(map[string]*previewDocument)}
	for i := range events {
		if !meter.SpendBytes(len(events[i].Data) + len(events[i].Metadata)) {
			break
		}
		goOn, err := t.foldEvent(events[i])
		if err != nil {
			return Preview{}, err
		}
		if !goOn {
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

// previewRun is a preview in progress.
type previewRun struct {
	fold      *Fold
	meter     *expr.Meter
	upcasters *upcasting.Set
	documents map[string]*previewDocument
	steps     []PreviewStep
	bytes     int
}

// previewDocument is a document of a previewRun.
type previewDocument struct {
	data    json.RawMessage // nil: it does not exist
	version int64
	parked  bool
}

// foldEvent folds an event into its documents. goOn is false if the projection would stop before the event.
func (t *previewRun) foldEvent(event domain.Event) (goOn bool, err error) {
	step := PreviewStep{Event: event}
	if !t.fold.Sees(&event) {
		return true, t.add(step)
	}
	parks := t.fold.definition.OnError == domain.OnErrorPark
	if step.Fault = Upcast(t.meter, t.upcasters, &event); step.Fault != nil {
		return parks, t.add(step)
	}
	step.Event = event
	e := NewEvent(&event, t.meter)
	targets, fault := t.fold.Targets(nil, &e)
	if step.Fault = fault; fault != nil || len(targets) == 0 {
		return parks || fault == nil, t.add(step)
	}
	first := len(t.steps)
	folded := make([]previewDocument, len(targets))
	for i, target := range targets {
		folded[i] = t.foldInto(&step, e.Into(target))
		if target.Item != nil {
			if step.Item, err = expr.AppendJSON(nil, target.Item); err != nil {
				return false, err
			}
		}
		if step.Fault != nil && !parks {
			t.steps = append(t.steps[:first], step) // it would take effect on no document
			return false, nil
		}
		if err := t.add(step); err != nil {
			return false, err
		}
	}
	for i := range targets {
		t.documents[targets[i].ID] = &folded[i]
	}
	return true, nil
}

// add adds a step.
func (t *previewRun) add(step PreviewStep) error {
	t.steps = append(t.steps, step)
	t.meter.SpendBytes(2 * len(step.Document)) // it was read and written
	if t.bytes += len(step.Event.Data) + len(step.Item) + len(step.Document); t.bytes > MaxPreviewBytes {
		return domain.Errorf(domain.CodeTooLarge, "source",
			"at position %d the events and their documents exceed %d bytes; use fewer events", step.Event.Position, MaxPreviewBytes)
	}
	return nil
}

// foldInto folds an event into the document that is its target. It describes that in step, and returns the document.
func (t *previewRun) foldInto(step *PreviewStep, event *Event) previewDocument {
	var document previewDocument
	if known := t.documents[event.DocumentID()]; known != nil {
		document = *known
	}
	*step = PreviewStep{Event: step.Event, DocumentID: event.DocumentID()}
	if step.Parked = document.parked; step.Parked {
		return document
	}
	after, fault := t.fold.after(document.data, event)
	switch {
	case fault != nil:
		fault.DocumentID, fault.Before = step.DocumentID, document.data
		step.Fault, document.parked = fault, true
	case after == nil && t.fold.Maps():
		step.Removed = document.data == nil // an event that makes no record leaves the existing one
		step.Document = document.data
	default:
		step.Document, step.Removed = after, after == nil
		document.data, document.version = after, event.Position
	}
	return document
}

// after returns the document after an event. Both documents are in stored form; nil means that there is none.
func (f *Fold) after(before json.RawMessage, event *Event) (json.RawMessage, *EventError) {
	var doc Value
	if !f.Maps() {
		var fault *EventError
		if doc, fault = f.Decode(before, event); fault != nil {
			return nil, fault
		}
	}
	after, fault := f.Next(doc, event)
	if fault != nil || after == nil {
		return nil, fault
	}
	return f.Encode(after, event)
}
