package folding

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// FieldChange is a field in which two definitions differ.
type FieldChange struct {
	Field  string          // such as "on.ItemAdded", "indexes" or "source.categories"
	Before json.RawMessage // nil: the field is new
	After  json.RawMessage // nil: the field is gone
}

// Changes returns the fields in which after differs from before, in the order in which definitions are written. Fields
// that mean the same (see SameDefinition) do not differ. If before is nil, Changes returns the fields of after that
// differ from the defaults. If after is nil, it returns those of before as removed.
func Changes(before, after *domain.Definition) []FieldChange {
	changes := []FieldChange{}
	switch {
	case before == nil && after == nil:
	case before == nil || after == nil:
		d, usual := before, domain.Definition{}
		if d == nil {
			d = after
		}
		usual.Handler, usual.Map = d.Handler, d.Map // the defaults depend on the kind of definition
		defaults := fieldsOf(usual)
		for _, f := range fieldsOf(*d) {
			if f.name != "handler" && !f.rule && slices.ContainsFunc(defaults, f.same) {
				continue
			}
			change := FieldChange{Field: f.name, After: f.value}
			if after == nil {
				change.Before, change.After = f.value, nil
			}
			changes = append(changes, change)
		}
	default:
		old, now := fieldsOf(*before), fieldsOf(*after)
		for _, f := range now {
			switch i := slices.IndexFunc(old, f.named); {
			case i < 0:
				changes = append(changes, FieldChange{Field: f.name, After: f.value})
			case !f.same(old[i]):
				changes = append(changes, FieldChange{Field: f.name, Before: old[i].value, After: f.value})
			}
		}
		for _, f := range old {
			if !slices.ContainsFunc(now, f.named) {
				changes = append(changes, FieldChange{Field: f.name, Before: f.value})
			}
		}
	}
	return changes
}

// SameDocuments reports whether two definitions produce the same documents in the same place, with the same indexes.
// They may still differ in the handling of events that cannot be folded, in the publishing of changes, in totals,
// and in a rebuild's assertions. One can then replace the other at once, without a rebuild.
func SameDocuments(a, b domain.Definition) bool {
	b.OnError, b.PublishChanges, b.Totals, b.Assert = a.OnError, a.PublishChanges, a.Totals, a.Assert
	return SameDefinition(a, b)
}

// definitionPart is a piece of a definition that changes as a whole.
type definitionPart struct {
	name  string
	value json.RawMessage
	rule  bool // an entry of On or Map
}

func (f definitionPart) named(other definitionPart) bool { return f.name == other.name }

func (f definitionPart) same(other definitionPart) bool {
	return f.name == other.name && bytes.Equal(f.value, other.value)
}

// fieldsOf returns the nonempty fields of a definition with its defaults filled in, in the form in which they are
// compared.
func fieldsOf(d domain.Definition) (fields []definitionPart) {
	d = WithDefaults(d)
	add := func(name string, value any, empty, rule bool) {
		if empty {
			return
		}
		text := new(bytes.Buffer)
		encoder := json.NewEncoder(text)
		encoder.SetEscapeHTML(false) // people read it
		if err := encoder.Encode(value); err != nil {
			return // impossible: these are texts and lists of texts
		}
		fields = append(fields, definitionPart{name, bytes.TrimSpace(text.Bytes()), rule})
	}
	one := func(name, value string) { add(name, value, value == "", false) }
	list := func(name string, values []string) { add(name, values, len(values) == 0, false) }
	rules := func(name string, of map[string]string) {
		for _, eventType := range slices.Sorted(maps.Keys(of)) {
			add(name+"."+eventType, of[eventType], false, true)
		}
	}
	one("database", d.Database)
	one("aggregate", d.Aggregate)
	list("source.categories", sortedTexts(d.Source.Categories))
	query := d.Source.Query.Items.Sorted()
	add("source.query", domain.QueryForm{Items: query}, len(query) == 0, false)
	one("key", d.Key)
	if len(d.Initial) > 0 {
		fields = append(fields, definitionPart{name: "initial", value: canonical(d.Initial)})
	}
	rules("on", d.On)
	rules("map", d.Map)
	one("handler", d.Handler)
	one("partitionBy", d.PartitionBy)
	list("indexes", d.Indexes)
	one("mode", string(d.Mode))
	one("onError", string(d.OnError))
	add("publishChanges", d.PublishChanges, !d.PublishChanges, false)
	add("totals", d.Totals, d.Totals == nil, false)
	list("assert", d.Assert)
	return fields
}
