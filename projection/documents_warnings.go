package projection

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
)

// maxWarnings limits the warnings of a page of documents.
const maxWarnings = 10

// maxFieldListBytes limits the list of fields in a warning.
const maxFieldListBytes = 200

// warnings names the fields in a query that no document of the projection can have. The query is still answered by the
// rules of the filter language: a document without the field does not match, and sorts last.
func (c *Catalog) warnings(ctx context.Context, p domain.Projection, query domain.DocumentQuery, fields []domain.Path) (warnings []string) {
	if query.Where == nil && len(query.Order) == 0 && len(fields) == 0 {
		return nil
	}
	fold, err := c.foldOf(ctx, p.Definition)
	if err != nil {
		return nil // the query is answered without warnings
	}
	shape := fold.Shape()
	if shape == nil {
		return nil
	}
	look := func(where string, path domain.Path) {
		names, known := shape.Lacks(path)
		if names == 0 || len(warnings) == maxWarnings {
			return
		}
		above := strings.Join(path[:names-1], ".")
		if above != "" {
			above += "."
		}
		warning := fmt.Sprintf("%s: no document of projection %q can have a field %q", where, p.Name, folding.Clip(above+path[names-1]))
		if list := strings.Join(known, ", "); list != "" && len(list) <= maxFieldListBytes {
			warning += "; known are " + list
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
