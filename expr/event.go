package expr

import (
	"fmt"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// Event is the variable `event`: an event of the log during an evaluation. Its data and metadata are parsed on first
// use, and at most once, so one Event serves all expressions evaluated for it. Therefore only one goroutine at a time
// may use an Event.
type Event struct {
	event    *domain.Event
	meter    *Meter // for the evaluations; may be nil
	target   Target // see WithTarget
	data     Value
	metadata Value
	asObject *Object // the event as an object, once requested
	stored   *Object // the same, in a document's form

	dataIndex, metadataIndex partIndex // for expressions that read few fields
}

// NewEvent wraps event, which must not change as long as the result is used. It parses nothing.
func NewEvent(event *domain.Event) *Event { return &Event{event: event} }

// WithMeter sets the meter that may end evaluations for the event, and returns the event.
func (e *Event) WithMeter(meter *Meter) *Event {
	e.meter = meter
	return e
}

// WithTarget sets the document that the event is folded into, whose ID and Item are the variables `key` and `item`. It
// returns the event.
func (e *Event) WithTarget(target Target) *Event {
	e.target = target
	return e
}

// Copy returns an event that another goroutine may use. What e has parsed is not parsed again.
func (e *Event) Copy() *Event {
	another := *e
	another.dataIndex.fields, another.metadataIndex.fields = slices.Clone(e.dataIndex.fields), slices.Clone(e.metadataIndex.fields)
	return &another
}

// eventFields are the fields of `event`, in byte order.
var eventFields = []string{"category", "data", "id", "key", "metadata", "occurredAt", "position", "recordedAt", "stream", "tags", "type", "version"}

// field returns a field by name; found is false if events have no such field.
func (e *Event) field(name string) (v Value, found bool, err error) {
	switch name {
	case "category":
		return String(domain.Category(e.event.Stream)), true, nil
	case "data":
		if e.data == nil {
			e.data, err = parsePart(e.event.Data, "data")
		}
		return e.data, true, err
	case "id":
		return String(e.event.ID.String()), true, nil
	case "key":
		return String(domain.Key(e.event.Stream)), true, nil
	case "metadata":
		if e.metadata == nil {
			e.metadata, err = parsePart(e.event.Metadata, "metadata")
		}
		return e.metadata, true, err
	case "occurredAt":
		if e.event.OccurredAt.IsZero() {
			return timestamp(e.event.RecordedAt), true, nil
		}
		return timestamp(e.event.OccurredAt), true, nil
	case "position":
		return Int(e.event.Position), true, nil
	case "recordedAt":
		return timestamp(e.event.RecordedAt), true, nil
	case "stream":
		return String(e.event.Stream), true, nil
	case "tags":
		tags := make([]Value, len(e.event.Tags))
		for i, tag := range e.event.Tags {
			tags[i] = String(tag)
		}
		return NewList(tags...), true, nil
	case "type":
		return String(e.event.Type), true, nil
	case "version":
		return Int(e.event.Version), true, nil
	}
	return nil, false, nil
}

func parsePart(raw []byte, name string) (Value, error) {
	if len(raw) == 0 {
		return Null{}, nil
	}
	v, err := ParseJSON(raw)
	if err != nil {
		return nil, fmt.Errorf("the event's %s: %w", name, err)
	}
	return v, nil
}

// object returns the event as an object with all its fields.
func (e *Event) object() (*Object, error) {
	if e.asObject != nil {
		return e.asObject, nil
	}
	o := &Object{keys: eventFields}
	for _, name := range eventFields {
		v, _, err := e.field(name)
		if err != nil {
			return nil, err
		}
		o.values = append(o.values, v)
	}
	o.measure()
	e.asObject = o
	return o, nil
}

// settled returns the event in settle's form. It is built once: an expression may use its event many times.
func (e *Event) settled() (Value, error) {
	if e.stored == nil {
		object, err := e.object()
		if err != nil {
			return nil, err
		}
		v, err := settle(object)
		if err != nil {
			return nil, err
		}
		e.stored = v.(*Object)
	}
	return e.stored, nil
}
