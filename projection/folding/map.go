package folding

import (
	"encoding/json"
	"errors"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// A map makes separate records of each event: no state, no order, nothing to load. Of two events with one key, the
// record of the later one stays. An event that makes no record leaves the existing one.

// mapper is the Handler of a map: record replaces Decode and Fold, which are never called.
type mapper interface {
	// record returns what the event makes for its target, in the form that Encode takes; nil if it makes nothing.
	record(event *Event) (Value, error)
	// distinct reports whether all events have different keys.
	distinct() bool
}

// notFolded implements the methods of Handler that a map does not use.
type notFolded struct{}

var errNotFolded = errors.New("a map is not folded")

func (notFolded) Decode(json.RawMessage) (Value, error) { return nil, errNotFolded }
func (notFolded) Fold(Value, *Event) (Value, error)     { return nil, errNotFolded }

// mapExpressions is the handler built from the expressions of a definition's map.
type mapExpressions struct {
	targetsOnly
	notFolded
	rules[expr.Map]
	key *expr.Key
	id  bool // the key is event.id: no need to evaluate
}

func compileMap(meter *expr.Meter, d domain.Definition, found *problems) *mapExpressions {
	h := &mapExpressions{id: d.Key == DefaultMapKey}
	var err error
	if h.key, err = expr.CompileKey(d.Key); err != nil {
		found.add("key", "%s", err)
	}
	h.rules = compileRules(meter, "map", d.Map, expr.CompileMap, found)
	return h
}

func (h *mapExpressions) Targets(targets []Target, event *Event) ([]Target, error) {
	if h.id {
		return append(targets, Target{ID: event.ID.String()}), nil
	}
	return h.key.Targets(targets, event.expression())
}

func (h *mapExpressions) distinct() bool { return h.id }

func (h *mapExpressions) record(event *Event) (Value, error) {
	program := h.of(event.Type)
	if program == nil {
		return nil, nil // an event type that was not requested, but harmless
	}
	record, err := program.Eval(event.expression())
	if err != nil || record == nil {
		return nil, err
	}
	return record, nil
}

func (h *mapExpressions) Encode(record Value) (json.RawMessage, error) {
	return expr.AppendJSON(nil, record.(*expr.Object))
}

// MapRule is a map to records of type T, which encoding/json writes.
type MapRule[T any] struct {
	// Types are the event types to map; none: all.
	Types []string
	// Key returns the id of the event's record; "" if the event is not for this projection. nil: the event's id.
	Key func(event domain.Event) (string, error)
	// Keys replaces Key: it returns the ids of all records of the event, as Rule.Keys does.
	Keys func(event domain.Event) ([]string, error)
	// Map returns the event's record; nil if it makes none.
	Map func(event domain.Event) (*T, error)
	// MapTo replaces Map: it is also called with the record's id.
	MapTo func(id string, event domain.Event) (*T, error)
}

// MapOf returns a handler for a map. A panic in the rule's functions is a fault of the event, like an error.
func MapOf[T any](rule MapRule[T]) Handler { return typedMap[T]{rule: rule} }

type typedMap[T any] struct {
	notFolded
	rule MapRule[T]
}

func (h typedMap[T]) Types() []string {
	return append([]string(nil), h.rule.Types...) // nil if there are none
}

func (h typedMap[T]) Key(event *Event) (id string, ok bool, err error) {
	if h.distinct() {
		return event.ID.String(), true, nil
	}
	return keyOf(h.rule.Key, h.rule.Keys, event)
}

func (h typedMap[T]) Targets(targets []Target, event *Event) ([]Target, error) {
	if h.distinct() {
		return append(targets, Target{ID: event.ID.String()}), nil
	}
	return appendTargets(targets, h.rule.Key, h.rule.Keys, event)
}

func (h typedMap[T]) spreads() bool { return h.rule.Keys != nil }

func (h typedMap[T]) distinct() bool { return h.rule.Key == nil && h.rule.Keys == nil }

func (h typedMap[T]) record(event *Event) (_ Value, err error) {
	defer recoverPanic(&err)
	var record *T
	if h.rule.MapTo != nil {
		record, err = h.rule.MapTo(event.target.ID, *event.Event)
	} else {
		record, err = h.rule.Map(*event.Event)
	}
	if err != nil || record == nil {
		return nil, err
	}
	return record, nil
}

func (h typedMap[T]) Encode(record Value) (data json.RawMessage, err error) {
	defer recoverPanic(&err)
	return json.Marshal(record.(*T))
}
