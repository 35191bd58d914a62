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
		for _, rule := range h.all {
			shape.Add(rule.Shape())
		}
	case *mapExpressions:
		for _, rule := range h.all {
			shape.Add(rule.Shape())
		}
	default:
		return nil
	}
	return shape
}
