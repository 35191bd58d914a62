package expr

import (
	"maps"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// members are the names at the top of an object that an expression can give.
type members struct {
	names map[string]struct{}
	open  bool // it may have others, which the syntax tree does not show
}

// membersOf reads them off the syntax tree. The document itself adds none: what it has, it has from earlier events.
func membersOf(root ast.Expr) members {
	m := members{names: make(map[string]struct{})}
	m.read(root)
	return m
}

func (m *members) read(e ast.Expr) {
	switch e.Kind() {
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			key := entry.AsMapEntry().Key()
			name, ok := types.String(""), key.Kind() == ast.LiteralKind
			if ok {
				name, ok = key.AsLiteral().(types.String)
			}
			if !ok {
				m.open = true
				continue
			}
			m.names[string(name)] = struct{}{}
		}
	case ast.LiteralKind: // null, since nothing else is a document
	case ast.IdentKind:
		m.open = m.open || e.AsIdent() != "doc" && e.AsIdent() != ".doc"
	case ast.CallKind:
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.Conditional:
			m.read(call.Args()[1])
			m.read(call.Args()[2])
		case "merge":
			for _, argument := range call.Args() {
				m.read(argument)
			}
		case "without":
			m.read(call.Args()[0])
		default:
			m.open = true
		}
	default:
		m.open = true
	}
}

// Members returns the names that the fold may give an object at its top, in their order, beside those that the object has had
// before; known is false where the expression does not show them.
func (f *Fold) Members() (names []string, known bool) { return f.program.members.list() }

// Members is Fold.Members for the record that the map makes.
func (m *Map) Members() (names []string, known bool) { return m.program.members.list() }

func (m *members) list() (names []string, known bool) {
	return slices.Sorted(maps.Keys(m.names)), !m.open
}

// Suggest proposes the known name that is nearest to a misspelt one, as a question; empty where none is near.
func Suggest(name string, known []string) string { return suggest(name, known, "") }
