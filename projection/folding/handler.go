package folding

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// Event is an event during a fold. Only one goroutine may use it at a time.
type Event struct {
	*domain.Event
	bound  *expr.Event
	meter  *expr.Meter // for the evaluations; may be nil
	target Target      // see Into
}

// Target is a document that an event belongs to.
type Target = expr.Target

// NewEvent returns an event for a fold. The meter may end the evaluations for the event; it may be nil.
func NewEvent(event *domain.Event, meter *expr.Meter) Event { return Event{Event: event, meter: meter} }

// Within replaces the meter, and returns the event.
func (e *Event) Within(meter *expr.Meter) *Event {
	e.meter = meter
	if e.bound != nil {
		e.bound.WithMeter(meter)
	}
	return e
}

// Into sets the document that the event is folded into, and returns the event.
func (e *Event) Into(target Target) *Event {
	e.target = target
	if e.bound != nil {
		e.bound.WithTarget(target)
	}
	return e
}

// CopyInto returns a copy of the event, which another goroutine may fold into another document.
func (e *Event) CopyInto(target Target) Event {
	another := *e
	if e.bound != nil {
		another.bound = e.bound.Copy()
	}
	another.Into(target)
	return another
}

// DocumentID returns the id of the document that the event is folded into. It is empty while a key is computed.
func (e *Event) DocumentID() string { return e.target.ID }

// expression returns the event as expressions see it. It is parsed once, however many expressions read it.
func (e *Event) expression() *expr.Event {
	if e.bound == nil {
		e.bound = expr.NewEvent(e.Event).WithMeter(e.meter).WithTarget(e.target)
	}
	return e.bound
}

// Release frees the parsed data of an event that has been folded.
func (e *Event) Release() { e.bound = nil }

// Value is a document in the form that its handler uses.
type Value any

// Handler is the logic of a fold: the expressions of a definition, or Go code of a program that embeds Manifold (see
// HandlerOf). Many goroutines may call it at once, but only one per document, in the order of the document's events.
// The same calls must give the same results: a batch may be folded again after it failed.
//
// An error means that the event cannot be folded. It stops the projection for the tenant that owns the event.
type Handler interface {
	// Types returns the event types that the handler needs; nil: all of them.
	Types() []string
	// Key returns the id of the document that the event belongs to: 1 to domain.MaxDocumentIDBytes bytes of UTF-8
	// without U+0000. ok is false if the event is not for this projection. It is not called if there are Targets.
	Key(event *Event) (id string, ok bool, err error)
	// Decode reads a stored document; nil means the document before its first event.
	Decode(data json.RawMessage) (Value, error)
	// Fold returns the document after the event; nil removes it. It may change doc and return it.
	Fold(doc Value, event *Event) (Value, error)
	// Encode writes a document as a JSON object. Manifold stores its numbers in the form of domain.CanonicalNumbers.
	Encode(doc Value) (json.RawMessage, error)
}

// Targeter may be implemented by a Handler whose events may belong to several documents each. Fold is then called once
// for each of them; Event.DocumentID tells them apart.
type Targeter interface {
	Handler
	// Targets appends the documents that the event belongs to: at most domain.MaxEventDocuments, with distinct ids.
	// There are none if the event is not for this projection.
	Targets(targets []Target, event *Event) ([]Target, error)
}

// checkTargets checks an event's targets as Targeter requires.
func checkTargets(targets []Target) error {
	if len(targets) > domain.MaxEventDocuments {
		return fmt.Errorf("the event belongs to %d documents; at most %d are allowed", len(targets), domain.MaxEventDocuments)
	}
	for i := range targets {
		if err := domain.CheckDocumentID("", targets[i].ID); err != nil {
			return err
		}
		if slices.ContainsFunc(targets[:i], func(t Target) bool { return t.ID == targets[i].ID }) {
			return fmt.Errorf("the event has the key %q twice", Clip(targets[i].ID))
		}
	}
	return nil
}

// targetsOnly implements the method of Handler that a Targeter does not use.
type targetsOnly struct{}

func (targetsOnly) Key(*Event) (string, bool, error) {
	return "", false, errors.New("the handler has Targets instead of a key")
}

// Relaxed may be implemented by a Handler whose documents need not be up to date at every moment, such as daily totals.
// The runner then gives each tenant's pair a turn at most once per Interval, with all events since in one batch. For a
// busy log that costs far less than following each event.
//
// Readers that need current documents do not wait for the interval. A read with a minPosition, or a catch-up, starts
// the turn at once if the same process follows the tenant. Another process does not notice it: there the wait is up to
// the interval.
type Relaxed interface {
	Handler
	// Interval returns how far, in time, the documents may lag behind the log.
	Interval() time.Duration
}

// Rule is a fold over documents of type T, which encoding/json reads and writes.
type Rule[T any] struct {
	// Types are the event types to fold; none: all.
	Types []string
	// Key returns the id of the document that the event belongs to, or "" if the event is not for this projection.
	Key func(event domain.Event) (string, error)
	// Keys replaces Key: it returns the ids of all documents that the event belongs to, each once, and at most
	// domain.MaxEventDocuments. Empty ids are left out; without any the event is not for this projection.
	Keys func(event domain.Event) ([]string, error)
	// Fold changes doc by event; keep is false to remove the document. Before a document's first event, doc is T's zero
	// value.
	Fold func(doc *T, event domain.Event) (keep bool, err error)
	// FoldInto replaces Fold: it is also called with the document's id.
	FoldInto func(doc *T, id string, event domain.Event) (keep bool, err error)
}

// HandlerOf returns a handler for a rule. A panic in the rule's functions is a fault of the event, like an error.
func HandlerOf[T any](rule Rule[T]) Handler { return typed[T]{rule} }

type typed[T any] struct{ rule Rule[T] }

func (h typed[T]) Types() []string {
	return append([]string(nil), h.rule.Types...) // nil if there are none
}

func (h typed[T]) Key(event *Event) (id string, ok bool, err error) {
	return keyOf(h.rule.Key, h.rule.Keys, event)
}

func (h typed[T]) Targets(targets []Target, event *Event) ([]Target, error) {
	return appendTargets(targets, h.rule.Key, h.rule.Keys, event)
}

func (h typed[T]) spreads() bool { return h.rule.Keys != nil }

// keyOf is the Handler.Key of a rule.
func keyOf(key func(domain.Event) (string, error), keys func(domain.Event) ([]string, error), event *Event) (id string, ok bool, err error) {
	if keys != nil {
		return "", false, errors.New("the rule has Keys, so its handler is a folding.Targeter; a handler around it needs the method Targets, too")
	}
	defer recoverPanic(&err)
	id, err = key(*event.Event)
	return id, id != "", err
}

// appendTargets is the Targeter.Targets of a rule.
func appendTargets(targets []Target, key func(domain.Event) (string, error), keys func(domain.Event) ([]string, error), event *Event) (_ []Target, err error) {
	if keys == nil {
		id, ok, err := keyOf(key, nil, event)
		if err == nil && ok {
			targets = append(targets, Target{ID: id})
		}
		return targets, err
	}
	defer recoverPanic(&err)
	ids, err := keys(*event.Event)
	for _, id := range ids {
		if id != "" {
			targets = append(targets, Target{ID: id})
		}
	}
	return targets, err
}

func (h typed[T]) Decode(data json.RawMessage) (Value, error) {
	doc := new(T)
	if data == nil {
		return doc, nil
	}
	if err := json.Unmarshal(data, doc); err != nil {
		return nil, fmt.Errorf("the stored document: %w", err)
	}
	return doc, nil
}

func (h typed[T]) Fold(value Value, event *Event) (_ Value, err error) {
	defer recoverPanic(&err)
	doc := value.(*T)
	var keep bool
	if h.rule.FoldInto != nil {
		keep, err = h.rule.FoldInto(doc, event.target.ID, *event.Event)
	} else {
		keep, err = h.rule.Fold(doc, *event.Event)
	}
	if err != nil || !keep {
		return nil, err
	}
	return doc, nil
}

func (h typed[T]) Encode(value Value) (data json.RawMessage, err error) {
	defer recoverPanic(&err)
	return json.Marshal(value.(*T))
}

// recoverPanic turns a panic of an embedding program's code into an error.
func recoverPanic(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("the handler panicked: %v", r)
	}
}
