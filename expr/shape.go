package expr

import (
	"encoding/json"
	"maps"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/manifold-es/manifold/domain"
)

// Shape is which members the objects at a place in documents can have, as far as expressions show. Its zero value has
// none.
type Shape struct {
	members map[string]*Shape
	open    bool // there may be other members, which the syntax tree does not show
}

// member returns the shape under the name, and adds it if necessary.
func (s *Shape) member(name string) *Shape {
	if s.members == nil {
		s.members = make(map[string]*Shape)
	}
	if s.members[name] == nil {
		s.members[name] = new(Shape)
	}
	return s.members[name]
}

// Add adds the members of another shape.
func (s *Shape) Add(other *Shape) {
	s.open = s.open || other.open
	for name, member := range other.members {
		s.member(name).Add(member)
	}
}

// AddJSON adds the members of a JSON value without leading white space; a list may contain anything.
func (s *Shape) AddJSON(data json.RawMessage) {
	var object map[string]json.RawMessage
	s.open = s.open || data[0] == '[' || data[0] == '{' && json.Unmarshal(data, &object) != nil
	for name, value := range object {
		s.member(name).AddJSON(value)
	}
}

// Lacks reports how much of the path no object of the shape can have, as the number of names up to the first missing
// one. known are the names that exist in its place. It returns 0 if the path may exist.
func (s *Shape) Lacks(path domain.Path) (names int, known []string) {
	for i, name := range path {
		if s.open {
			return 0, nil
		}
		next := s.members[name]
		if next == nil {
			return i + 1, slices.Sorted(maps.Keys(s.members))
		}
		s = next
	}
	return 0, nil
}

// read adds what the expression can produce at the path of a document. The document's own part at that path adds
// nothing: it comes from earlier events, through these same expressions.
func (s *Shape) read(e ast.Expr, path domain.Path) {
	if s.open || isPartOfDocument(e, path) {
		return
	}
	s.open = true // unless it is one of these
	switch e.Kind() {
	case ast.LiteralKind:
		s.open = false
	case ast.MapKind:
		s.open = false
		for _, entry := range e.AsMap().Entries() {
			entry := entry.AsMapEntry()
			if name, ok := stringLiteral(entry.Key()); ok {
				s.member(name).read(entry.Value(), append(slices.Clip(path), name))
			} else {
				s.open = true
			}
		}
	case ast.CallKind:
		call := e.AsCall()
		from := call.Args()
		switch call.FunctionName() {
		case operators.Conditional:
			from = from[1:]
		case "merge":
		case "without":
			from = from[:1]
		case "orValue":
			from = append([]ast.Expr{call.Target()}, from...)
		default:
			return
		}
		s.open = false
		for _, part := range from {
			s.read(part, path)
		}
	}
}

// isPartOfDocument reports whether the expression is the document's own part at the path.
func isPartOfDocument(e ast.Expr, path domain.Path) bool {
	if len(path) == 0 {
		return e.Kind() == ast.IdentKind && (e.AsIdent() == "doc" || e.AsIdent() == ".doc")
	}
	above, name := path[:len(path)-1], path[len(path)-1]
	if e.Kind() == ast.SelectKind {
		return !e.AsSelect().IsTestOnly() && e.AsSelect().FieldName() == name && isPartOfDocument(e.AsSelect().Operand(), above)
	}
	if !isCall(e, operators.OptSelect) && !isCall(e, operators.Index) && !isCall(e, operators.OptIndex) {
		return false
	}
	key, ok := stringLiteral(e.AsCall().Args()[1])
	return ok && key == name && isPartOfDocument(e.AsCall().Args()[0], above)
}

func isCall(e ast.Expr, function string) bool {
	return e.Kind() == ast.CallKind && e.AsCall().FunctionName() == function
}

func stringLiteral(e ast.Expr) (text string, ok bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	literal, ok := e.AsLiteral().(types.String)
	return string(literal), ok
}
