package folding

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// Event is an event during a fold. Only one goroutine may use it at a time.
type Event struct {
	*domain.Event
	bound *expr.Event
	meter *expr.Meter // for the evaluations; may be nil
}

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

// expression returns the event as expressions see it. It is parsed once, however many expressions read it.
func (e *Event) expression() *expr.Event {
	if e.bound == nil {
		e.bound = expr.NewEvent(*e.Event).WithMeter(e.meter)
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
	// without U+0000. ok is false if the event is not for this projection.
	Key(event *Event) (id string, ok bool, err error)
	// Decode reads a stored document; nil means the document before its first event.
	Decode(data json.RawMessage) (Value, error)
	// Fold returns the document after the event; nil removes it. It may change doc and return it.
	Fold(doc Value, event *Event) (Value, error)
	// Encode writes a document as a JSON object. Manifold stores its numbers in the form of domain.CanonicalNumbers.
	Encode(doc Value) (json.RawMessage, error)
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
	// Fold changes doc by event; keep is false to remove the document. Before a document's first event, doc is T's zero
	// value.
	Fold func(doc *T, event domain.Event) (keep bool, err error)
}

// HandlerOf returns a handler for a rule. A panic in the rule's functions is a fault of the event, like an error.
func HandlerOf[T any](rule Rule[T]) Handler { return typed[T]{rule} }

type typed[T any] struct{ rule Rule[T] }

func (h typed[T]) Types() []string {
	return append([]string(nil), h.rule.Types...) // nil if there are none
}

func (h typed[T]) Key(event *Event) (id string, ok bool, err error) {
	defer recoverPanic(&err)
	id, err = h.rule.Key(*event.Event)
	return id, id != "", err
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
	keep, err := h.rule.Fold(doc, *event.Event)
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
