package folding

import (
	"bytes"

	"github.com/manifold-es/manifold/expr"
)

// Shape returns which fields documents can have. It returns nil for Go code: documents stored by an earlier version of
// the code may have other fields than its types.
func (f *Fold) Shape() *expr.Shape {
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
