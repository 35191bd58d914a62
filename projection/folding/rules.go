package folding

import (
	"maps"
	"slices"

	"github.com/manifold-es/manifold/expr"
)

// program is a compiled expression for an event type: an expr.Fold or an expr.Map.
type program interface {
	Uses(field string) bool
	Shape() *expr.Shape
}

// rules are the compiled expressions of a definition, by event type.
type rules[P any] struct {
	field    string // of the definition: "on" or "map"
	types    []string
	byType   map[string]*P
	fallback *P // "*"; nil: events of other types are not folded
}

// compileRules compiles the expressions of a field. The result is meaningless if the meter ended it.
func compileRules[P any](meter *expr.Meter, field string, sources map[string]string, compile func(string) (*P, error), found *problems) rules[P] {
	r := rules[P]{field: field, byType: make(map[string]*P, len(sources))}
	for _, eventType := range slices.Sorted(maps.Keys(sources)) {
		if !meter.SpendSource(len(sources[eventType])) {
			break
		}
		compiled, err := compile(sources[eventType])
		switch {
		case err != nil:
			found.add(field+"."+eventType, "%s", err)
		case eventType == "*":
			r.fallback = compiled
		default:
			r.byType[eventType] = compiled
			r.types = append(r.types, eventType)
		}
	}
	return r
}

// Types implements Handler.
func (r *rules[P]) Types() []string {
	if r.fallback != nil {
		return nil
	}
	return slices.Clone(r.types)
}

// of returns the expression for an event type; nil: events of that type change nothing.
func (r *rules[P]) of(eventType string) *P {
	if compiled := r.byType[eventType]; compiled != nil {
		return compiled
	}
	return r.fallback
}

// all yields each expression with its place in the definition.
func (r *rules[P]) all(yield func(where string, compiled program) bool) {
	for _, eventType := range r.types {
		if !yield(r.field+"."+eventType, any(r.byType[eventType]).(program)) {
			return
		}
	}
	if r.fallback != nil {
		yield(r.field+".*", any(r.fallback).(program))
	}
}
