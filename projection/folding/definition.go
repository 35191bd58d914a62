package folding

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

const (
	// DefaultDatabase is the database of a definition that names none.
	DefaultDatabase = "default"
	// DefaultKey gives each stream one document, whose id is the stream's name.
	DefaultKey = "event.stream"
	// DefaultMapKey gives each event one record, whose id is the event's id. It is the default of a map.
	DefaultMapKey = "event.id"
	// MaxDefinitionBytes is the largest size of a definition, as YAML or JSON.
	MaxDefinitionBytes = 256 << 10
)

// ParseDefinition reads one definition and fills in the defaults. The text is YAML, or JSON if its first character is
// "{". It is strict: unknown and repeated fields, values of the wrong type, and YAML's anchors, aliases and tags are
// errors. It returns all errors at once, each with its line, as a *domain.Error with domain.CodeInvalidDefinition.
// Check validates what the definition means.
func ParseDefinition(text []byte) (domain.Definition, error) {
	if len(text) > MaxDefinitionBytes {
		return domain.Definition{}, domain.Errorf(domain.CodeTooLarge, "", "the definition has %d bytes; at most %d are allowed", len(text), MaxDefinitionBytes)
	}
	root, err := parseTree(text)
	if err != nil {
		return domain.Definition{}, err
	}
	var found problems
	d := readDefinition(root, &found)
	if err := found.err(); err != nil {
		return domain.Definition{}, err
	}
	return WithDefaults(d), nil
}

func readDefinition(root tree, found *problems) (d domain.Definition) {
	root.object(found, "", map[string]func(tree){
		"name":      func(v tree) { d.Name = v.text(found, "name") },
		"database":  func(v tree) { d.Database = v.text(found, "database") },
		"aggregate": func(v tree) { d.Aggregate = v.text(found, "aggregate") },
		"source": func(v tree) {
			v.object(found, "source", map[string]func(tree){
				"categories": func(v tree) { d.Source.Categories = v.texts(found, "source.categories") },
				"query":      func(v tree) { d.Source.Query.Items = readQuery(v, found) },
			})
		},
		"key":     func(v tree) { d.Key = v.expression(found, "key") },
		"initial": func(v tree) { d.Initial = v.json(found, "initial") },
		"on": func(v tree) {
			d.On = make(map[string]string)
			for _, f := range v.fields(found, "on") {
				d.On[f.name] = f.value.expression(found, "on."+f.name)
			}
		},
		"map": func(v tree) {
			d.Map = make(map[string]string)
			for _, f := range v.fields(found, "map") {
				d.Map[f.name] = f.value.expression(found, "map."+f.name)
			}
		},
		"handler":        func(v tree) { d.Handler = v.text(found, "handler") },
		"indexes":        func(v tree) { d.Indexes = v.texts(found, "indexes") },
		"partitionBy":    func(v tree) { d.PartitionBy = v.text(found, "partitionBy") },
		"mode":           func(v tree) { d.Mode = domain.Mode(v.text(found, "mode")) },
		"onError":        func(v tree) { d.OnError = domain.OnError(v.text(found, "onError")) },
		"publishChanges": func(v tree) { d.PublishChanges = v.boolean(found, "publishChanges") },
		"totals":         func(v tree) { d.Totals = readTotals(v, found) },
		"assert":         func(v tree) { d.Assert = v.texts(found, "assert") },
	})
	return d
}

// readQuery reads the query of a definition's source.
func readQuery(v tree, found *problems) (query domain.Query) {
	v.object(found, "source.query", map[string]func(tree){
		"items": func(v tree) {
			items, ok := v.value.([]tree)
			if !ok || len(items) == 0 {
				v.addWrongType(found, "source.query.items", "a list of at least one item, such as {tags: ['course:c1']}")
			}
			for i, item := range items {
				where := fmt.Sprintf("source.query.items[%d]", i)
				var one domain.QueryItem
				item.object(found, where, map[string]func(tree){
					"types": func(v tree) { one.Types = v.texts(found, where+".types") },
					"tags":  func(v tree) { one.Tags = v.texts(found, where+".tags") },
				})
				query = append(query, one)
			}
		},
	})
	return query
}

// readTotals reads the totals of a definition.
func readTotals(v tree, found *problems) *domain.Totals {
	totals := new(domain.Totals)
	v.object(found, "totals", map[string]func(tree){
		"sum": func(v tree) { totals.Sum = v.texts(found, "totals.sum") },
		"by":  func(v tree) { totals.By = v.text(found, "totals.by") },
	})
	return totals
}

// SameTotals reports whether two definitions sum the same.
func SameTotals(a, b *domain.Totals) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.By == b.By && slices.Equal(a.Sum, b.Sum)
}

// WithDefaults returns the definition with every optional field filled in. The result shares d's contents and does not
// copy them.
func WithDefaults(d domain.Definition) domain.Definition {
	if d.Database == "" {
		d.Database = DefaultDatabase
	}
	switch {
	case d.Handler != "", d.Aggregate != "":
	case d.Map != nil:
		if d.Key == "" {
			d.Key = DefaultMapKey
		}
	default:
		if d.Key == "" {
			d.Key = DefaultKey
		}
		if len(d.Initial) == 0 {
			d.Initial = json.RawMessage("{}")
		}
	}
	if d.Mode == "" {
		d.Mode = domain.ModeAsync
	}
	if d.OnError == "" {
		d.OnError = domain.OnErrorStop
	}
	return d
}

// SameDefinition reports whether two definitions mean the same, so that replacing one with the other changes nothing.
// It ignores explicit defaults, the order of categories and of a query's parts, and the formatting of the initial
// document.
func SameDefinition(a, b domain.Definition) bool {
	a, b = WithDefaults(a), WithDefaults(b)
	return a.Name == b.Name && a.Database == b.Database && a.Aggregate == b.Aggregate && a.Key == b.Key && a.Handler == b.Handler &&
		a.Mode == b.Mode && a.OnError == b.OnError && a.PublishChanges == b.PublishChanges &&
		slices.Equal(sortedTexts(a.Source.Categories), sortedTexts(b.Source.Categories)) &&
		a.Source.Query.Items.Sorted().Equal(b.Source.Query.Items.Sorted()) &&
		maps.Equal(a.On, b.On) && maps.Equal(a.Map, b.Map) &&
		a.PartitionBy == b.PartitionBy && slices.Equal(a.Indexes, b.Indexes) && slices.Equal(a.Assert, b.Assert) && SameTotals(a.Totals, b.Totals) &&
		bytes.Equal(canonical(a.Initial), canonical(b.Initial))
}

func sortedTexts(texts []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(texts)))
}

// canonical writes JSON with sorted keys and its numbers in one form. It returns text that is not JSON unchanged.
func canonical(raw json.RawMessage) []byte {
	v, err := expr.ParseJSON(raw)
	if err != nil {
		return raw
	}
	text, err := expr.AppendJSON(nil, v)
	if err != nil {
		return raw
	}
	return text
}

// SameValue reports whether two JSON texts have the same value, whatever the order of members and the form of numbers.
func SameValue(a, b json.RawMessage) bool { return bytes.Equal(canonical(a), canonical(b)) }
