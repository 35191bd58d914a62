package projection

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// Event is an event on its way through a fold. It is for one goroutine at a time.
type Event struct {
	*domain.Event
	bound *expr.Event
	meter *expr.Meter // of the evaluations; may be nil
}

// within has a meter end the evaluations for the event, and returns it.
func (e *Event) within(meter *expr.Meter) *Event {
	e.meter = meter
	if e.bound != nil {
		e.bound.Within(meter)
	}
	return e
}

// expression returns the event as expressions see it: parsed once, however many look at it.
func (e *Event) expression() *expr.Event {
	if e.bound == nil {
		e.bound = expr.NewEvent(*e.Event).Within(e.meter)
	}
	return e.bound
}

// Value is a document in the form that its handler works on.
type Value any

// Handler is what a fold does: the expressions of a definition, or Go code of a program that embeds Manifold (see
// HandlerOf). It may be called by many goroutines at once, for one document by one at a time and in the order of its
// events. The same calls must give the same results: a batch may be folded again after it failed.
//
// An error says that the event cannot be folded: it stops the projection for the tenant whose event it is.
type Handler interface {
	// Types returns the event types that the handler wants; nil: all of them.
	Types() []string
	// Key returns the id of the document that the event belongs to, 1 to domain.MaxDocumentIDBytes bytes of UTF-8
	// without U+0000; ok is false where the event is not for this projection.
	Key(event *Event) (id string, ok bool, err error)
	// Decode reads a stored document; nil stands for the one before the first event.
	Decode(data json.RawMessage) (Value, error)
	// Fold returns what the document becomes by the event; nil removes it. It may change doc and return it.
	Fold(doc Value, event *Event) (Value, error)
	// Encode writes a document as a JSON object. Its numbers are kept in the form that domain.CanonicalNumbers brings them
	// into.
	Encode(doc Value) (json.RawMessage, error)
}

// Rule is a fold over documents of type T, which encoding/json reads and writes.
type Rule[T any] struct {
	// Types are the event types that are wanted; none: all.
	Types []string
	// Key returns the id of the document that the event belongs to; "" where it is not for this projection.
	Key func(event domain.Event) (string, error)
	// Fold changes doc by event; keep is false where the document is to be removed. Before a document's first event,
	// doc is T's zero value.
	Fold func(doc *T, event domain.Event) (keep bool, err error)
}

// HandlerOf makes a handler of a rule. A panic of its functions is a fault of the event, as an error is.
func HandlerOf[T any](rule Rule[T]) Handler { return typed[T]{rule} }

type typed[T any] struct{ rule Rule[T] }

func (h typed[T]) Types() []string {
	if len(h.rule.Types) == 0 {
		return nil
	}
	return slices.Clone(h.rule.Types)
}

func (h typed[T]) Key(event *Event) (id string, ok bool, err error) {
	defer caught(&err)
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
	defer caught(&err)
	doc := value.(*T)
	keep, err := h.rule.Fold(doc, *event.Event)
	if err != nil || !keep {
		return nil, err
	}
	return doc, nil
}

func (h typed[T]) Encode(value Value) (data json.RawMessage, err error) {
	defer caught(&err)
	return json.Marshal(value.(*T))
}

// caught turns a panic of code that is not this project's into an error.
func caught(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("the handler panicked: %v", r)
	}
}
