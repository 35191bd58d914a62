package aggregate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// decision is what a command decides for a state: a rejection, or events. Without either, nothing is to be done.
type decision struct {
	rejected *Rejection
	events   []NewEvent
	bytes    int             // of the events' data and metadata
	state    *expr.Object    // after the events
	data     json.RawMessage // the same as JSON
	folded   bool            // state and data are known; they are not if the fold depends on what an append decides
	rules    []DecidedRule   // if they are asked for
}

// NewEvent is an event that a command decided to append.
type NewEvent struct {
	Stream   string
	Type     string
	Data     json.RawMessage
	Metadata json.RawMessage // nil: none
	Tags     []string        // valid, sorted, each once
	Derived  []string        // those of Tags that the schema of the type derives
}

// Rejection says why a command was rejected.
type Rejection struct {
	Rule    int    // its number in the definition's Require, from 0
	Code    string // the rule's
	Message string // for people; may be empty
}

// decide evaluates a command. A fault of an expression is a *domain.Error with domain.CodeFaulted that names its place.
// The result is meaningless if the meter ended it. With explain, it has the rules.
func (c *command) decide(meter *expr.Meter, name, stream string, in expr.Inputs, explain bool) (decision, error) {
	where := "commands." + name
	d := decision{}
	for i, r := range c.require {
		holds, err := r.holds.Eval(meter, &in)
		if err != nil {
			return decision{}, undecided(fmt.Sprintf("%s.require[%d].if", where, i), err)
		}
		if explain {
			d.rules = append(d.rules, r.explain(meter, i, bool(holds.(expr.Bool)), &in))
		}
		if holds.(expr.Bool) {
			continue
		}
		d.rejected = &Rejection{Rule: i, Code: r.Reject}
		if r.message != nil {
			text, err := r.message.Eval(meter, &in)
			if err != nil {
				return decision{}, undecided(fmt.Sprintf("%s.require[%d].message", where, i), err)
			}
			d.rejected.Message = domain.Clip(string(text.(expr.String)), maxRejectMessageBytes)
		}
		return d, nil
	}
	for i := range c.emit {
		if err := c.emit[i].eachEvent(meter, fmt.Sprintf("%s.emit[%d]", where, i), stream, in, &d); err != nil {
			return decision{}, err
		}
	}
	return d, nil
}

// eachEvent adds the events of an emission to a decision.
func (e *emission) eachEvent(meter *expr.Meter, where, stream string, in expr.Inputs, d *decision) error {
	if e.each == nil {
		return e.event(meter, where, stream, in, d)
	}
	items, err := e.each.Eval(meter, &in)
	if err != nil {
		return undecided(where+".each", err)
	}
	for i := range items.(expr.List).Len() {
		in.Item = items.(expr.List).At(i)
		if err := e.event(meter, where, stream, in, d); err != nil {
			return err
		}
	}
	return nil
}

func (e *emission) event(meter *expr.Meter, where, stream string, in expr.Inputs, d *decision) error {
	if e.when != nil {
		holds, err := e.when.Eval(meter, &in)
		if err != nil {
			return undecided(where+".if", err)
		}
		if !holds.(expr.Bool) {
			return nil
		}
	}
	data, err := e.data.Eval(meter, &in)
	if err != nil {
		return undecided(where+"."+e.Type, err)
	}
	if _, none := data.(expr.Null); none {
		return nil
	}
	event := NewEvent{Stream: stream, Type: e.Type}
	if e.stream != nil {
		name, err := e.stream.Eval(meter, &in)
		if err != nil {
			return undecided(where+".stream", err)
		}
		event.Stream = string(name.(expr.String))
		if err := domain.CheckStream(where+".stream", event.Stream); err != nil {
			return domain.Errorf(domain.CodeFaulted, where+".stream", "%s", domain.ClientMessage(err))
		}
	}
	metadata := in.Metadata
	if e.metadata != nil {
		added, err := e.metadata.Eval(meter, &in)
		if err != nil {
			return undecided(where+".metadata", err)
		}
		metadata = expr.Merge(metadata, added.(*expr.Object))
	}
	if e.tags != nil {
		if event.Tags, err = evalTags(meter, where+".tags", e.tags, &in); err != nil {
			return err
		}
	}
	if event.Data, err = expr.AppendJSON(nil, data); err != nil {
		return undecided(where+"."+e.Type, err)
	}
	if metadata.Len() > 0 {
		if event.Metadata, err = expr.AppendJSON(nil, metadata); err != nil {
			return undecided(where+".metadata", err)
		}
	}
	meter.SpendBytes(len(event.Data) + len(event.Metadata))
	return d.add(where, event)
}

// add adds an event to the decision, within the limits of a request.
func (d *decision) add(where string, event NewEvent) error {
	size := len(event.Data) + len(event.Metadata) + len(strings.Join(event.Tags, ""))
	switch {
	case size > domain.MaxEventBytes:
		return domain.Errorf(domain.CodeTooLarge, where, "the event has %d bytes; at most %d are allowed", size, domain.MaxEventBytes)
	case len(d.events) == domain.MaxRequestEvents:
		return domain.Errorf(domain.CodeTooLarge, where, "the command makes more than %d events", domain.MaxRequestEvents)
	case d.bytes+size > domain.MaxRequestBytes:
		return domain.Errorf(domain.CodeTooLarge, where, "the command's events have more than %d bytes", domain.MaxRequestBytes)
	}
	d.bytes += size
	d.events = append(d.events, event)
	return nil
}

// request returns the append of a decision's events to the command's stream and to others, which succeeds only if what
// the decision was made on is still the newest. The events keep their order. identify gives the event with a number its
// id.
func (d *decision) request(stream string, on known, identify func(n int) domain.EventID) domain.Append {
	request := domain.Append{Conditions: conditions(on.bounds)}
	expected := domain.Expected(on.version)
	if on.apart {
		expected = domain.Any
	}
	for n, e := range d.events {
		event := domain.NewEvent{ID: identify(n), Type: e.Type, Data: e.Data, Metadata: e.Metadata, Tags: e.Tags, Derived: e.Derived}
		if last := len(request.Streams) - 1; last >= 0 && request.Streams[last].Stream == e.Stream {
			request.Streams[last].Events = append(request.Streams[last].Events, event)
			continue
		}
		next := domain.StreamAppend{Stream: e.Stream, Expected: domain.Any, Events: []domain.NewEvent{event}}
		if e.Stream == stream {
			next.Expected, expected = expected, domain.Any // only the first may state a version
		}
		request.Streams = append(request.Streams, next)
	}
	return request
}

// fold folds a decision's events into the state, to know the state after the append, and to refuse events that could
// not be folded. It does not if the fold depends on what only the append decides: the events' ids, positions and times.
func (f *fold) fold(meter *expr.Meter, stream string, version int64, state *expr.Object, d *decision) error {
	d.state, d.folded = state, true
	for _, e := range d.events {
		if e.Stream != stream {
			continue
		}
		if f.dependsOnAppend(e.Type) {
			d.state, d.folded = nil, false
			return nil
		}
		version++
		var err error
		d.state, err = f.next(meter, d.state, &domain.Event{Stream: e.Stream, Version: version, Type: e.Type, Data: e.Data, Metadata: e.Metadata, Tags: e.Tags})
		if problem, ok := unfolded(err, e); ok {
			return problem
		} else if err != nil {
			return err
		}
	}
	return nil
}

// unfolded returns the error for an event that was decided but cannot be folded.
func unfolded(err error, e NewEvent) (*domain.Error, bool) {
	problem, ok := errors.AsType[*domain.Error](err)
	if !ok {
		return nil, false
	}
	return domain.Errorf(domain.CodeFaulted, problem.Where, "the command's event %s cannot be folded, so nothing was appended: %s", e.Type, problem.Message), true
}

// dependsOnAppend reports whether the fold of a type reads what only an append decides.
func (f *fold) dependsOnAppend(eventType string) bool {
	if f.inGo != nil {
		return f.upcasters.Concerns(eventType)
	}
	if _, upcast := f.upcast[eventType]; upcast {
		return true
	}
	return f.uses(eventType, "id", "position", "recordedAt", "occurredAt")
}

// uses reports whether the fold of a type may read one of the event's fields.
func (f *fold) uses(eventType string, fields ...string) bool {
	step := f.on[eventType]
	if step == nil {
		step = f.on[anyType]
	}
	return step != nil && slices.ContainsFunc(fields, step.Uses)
}

func undecided(where string, err error) *domain.Error {
	return domain.Errorf(domain.CodeFaulted, where, "the command cannot be decided: %s", err)
}

// object reads a JSON object; nothing is the empty one.
func object(where string, text json.RawMessage) (*expr.Object, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return expr.NewObject(nil), nil
	}
	o, err := expr.ParseDocument(text)
	if err != nil {
		return nil, domain.Errorf(domain.CodeInvalidRequest, where, "it must be a JSON object: %s", err)
	}
	return o, nil
}
