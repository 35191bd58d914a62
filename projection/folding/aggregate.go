package folding

import (
	"encoding/json"

	"github.com/manifold-es/manifold/domain"
)

// AggregateRules are what a definition takes from the aggregate that it names.
type AggregateRules struct {
	Initial json.RawMessage   // empty: {}
	On      map[string]string // event type, or "*" -> expression (state, event) -> state or null
}

// FromAggregate returns a definition that names an aggregate as it is stored, with the aggregate's rules. It refuses a
// definition with rules or a source besides.
func FromAggregate(d domain.Definition, rules AggregateRules) (domain.Definition, error) {
	var found problems
	refuse := func(field string, given bool) {
		if given {
			found.add(field, "with aggregate: %s the projection has the aggregate's source and rules; leave %s or aggregate out", Clip(d.Aggregate), field)
		}
	}
	refuse("source", len(d.Source.Categories) > 0 || len(d.Source.Query.Items) > 0)
	refuse("key", d.Key != "")
	refuse("initial", len(d.Initial) > 0)
	refuse("on", d.On != nil)
	refuse("map", d.Map != nil)
	refuse("handler", d.Handler != "")
	if err := found.err(); err != nil {
		return d, err
	}
	d.Source.Categories, d.Key, d.Initial, d.On = []string{d.Aggregate}, DefaultKey, rules.Initial, rules.On
	return d, nil
}

// WithoutRules returns a definition as it was put: without what FromAggregate adds.
func WithoutRules(d domain.Definition) domain.Definition {
	if d.Aggregate != "" {
		d.Source, d.Key, d.Initial, d.On = domain.Source{}, "", nil, nil
	}
	return d
}
