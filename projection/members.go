package projection

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// mostWarnings is how many warnings a page of documents has at most.
const mostWarnings = 10

// shape returns which fields documents can have; nil where the definition does not show them, being Go code: what was stored by
// an earlier version of that may have others than its types.
func (f *Fold) shape() *expr.Shape {
	shape := new(expr.Shape)
	switch h := f.handler.(type) {
	case *expressions:
		if len(f.definition.Initial) > 0 {
			shape.AddJSON(bytes.TrimSpace(f.definition.Initial))
		}
		for _, fold := range h.on {
			shape.Add(fold.Shape())
		}
		if h.other != nil {
			shape.Add(h.other.Shape())
		}
	case *mapExpressions:
		for _, made := range h.on {
			shape.Add(made.Shape())
		}
		if h.other != nil {
			shape.Add(h.other.Shape())
		}
	default:
		return nil
	}
	return shape
}

// warnings says which fields a query names that no document of the projection can have. Such a query is answered all the
// same, as the filter language has it: a document without the field does not match, and stands last in the order.
func (c *Catalog) warnings(ctx context.Context, p domain.Projection, query domain.DocumentQuery, fields []domain.Path) (warnings []string) {
	if query.Where == nil && len(query.Order) == 0 && len(fields) == 0 {
		return nil
	}
	fold, err := c.foldOf(ctx, p.Definition)
	if err != nil {
		return nil // what is asked for is answered without
	}
	shape := fold.shape()
	if shape == nil {
		return nil
	}
	look := func(where string, path domain.Path) {
		names, known := shape.Lacks(path)
		if names == 0 || len(warnings) == mostWarnings {
			return
		}
		above := strings.Join(path[:names-1], ".")
		if above != "" {
			above += "."
		}
		warning := fmt.Sprintf("%s: no document of projection %q can have a field %q", where, p.Name, clip(above+path[names-1]))
		if near := expr.Suggest(path[names-1], known); near != "" {
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
	for _, path := range fields {
		look("fields", path)
	}
	return warnings
}
