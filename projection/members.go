package projection

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// mostWarnings is how many warnings a page of documents has at most.
const mostWarnings = 10

// members returns the names that documents can have at their top, in their order; known is false where the definition does
// not show them: it is Go code, say, or takes a name from an event.
func (f *Fold) members() (names []string, known bool) {
	all := make(map[string]struct{})
	known = true
	add := func(names []string, shown bool) {
		known = known && shown
		for _, name := range names {
			all[name] = struct{}{}
		}
	}
	switch h := f.handler.(type) {
	case *expressions:
		var initial map[string]json.RawMessage
		known = len(f.definition.Initial) == 0 || json.Unmarshal(f.definition.Initial, &initial) == nil
		add(slices.Collect(maps.Keys(initial)), true)
		for _, fold := range h.on {
			add(fold.Members())
		}
		if h.other != nil {
			add(h.other.Members())
		}
	case *mapExpressions:
		for _, made := range h.on {
			add(made.Members())
		}
		if h.other != nil {
			add(h.other.Members())
		}
	default:
		return nil, false
	}
	return slices.Sorted(maps.Keys(all)), known
}

// warnings says which fields a query names that no document of the projection can have. Such a query is answered all the
// same, as the filter language has it: a document without the field does not match, and stands last in the order.
func (c *Catalog) warnings(ctx context.Context, p domain.Projection, query domain.DocumentQuery) (warnings []string) {
	if query.Where == nil && len(query.Order) == 0 {
		return nil
	}
	fold, err := c.foldOf(ctx, p.Definition)
	if err != nil {
		return nil // what is asked for is answered without
	}
	names, known := fold.members()
	if !known {
		return nil
	}
	look := func(where string, path domain.Path) {
		if _, has := slices.BinarySearch(names, path[0]); has || len(warnings) == mostWarnings {
			return
		}
		warning := fmt.Sprintf("%s: no document of projection %q can have a field %q", where, p.Name, clip(path[0]))
		if near := expr.Suggest(path[0], names); near != "" {
			warning += "; " + near
		}
		if !slices.Contains(warnings, warning) {
			warnings = append(warnings, warning)
		}
	}
	domain.Paths(query.Where, func(path domain.Path) { look("filter", path) })
	for _, order := range query.Order {
		look("orderBy", order.Path)
	}
	return warnings
}
