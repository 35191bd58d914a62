package expr

import (
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// MaxPaths is how many paths of a decision are recorded: its first ones.
const MaxPaths = 50

// Path is a chain of fields that begins with a variable, such as state.customer.name. It is immutable.
type Path struct {
	text     string
	variable int // its slot
	fields   []string
}

// Fields returns the fields after the variable. The caller must not change them.
func (p *Path) Fields() []string { return p.fields }

// String returns the path as an expression: state.customer.name, state["first name"].
func (p *Path) String() string { return p.text }

// Find returns the value at the path. found is false if an object on the way lacks the field, or is no object.
func (p *Path) Find(in *Inputs) (value Value, found bool) {
	value = in.values()[p.variable]
	for _, field := range p.fields {
		object, ok := value.(*Object)
		if !ok {
			return nil, false
		}
		if value, ok = object.Get(field); !ok {
			return nil, false
		}
	}
	return value, value != nil
}

// Paths returns what the expression reads: the longest chains of fields that begin with a variable, each once, in their
// order in the text, and at most MaxPaths. A variable that is used as a whole is a path without fields.
func (d *Decision) Paths() []Path { return d.paths }

// pathsOf derives the paths from the syntax tree, and which variables are read, by slot.
func pathsOf(root ast.Expr, variables []string) (paths []Path, reads uint) {
	w := pathWalk{variables: variables}
	w.visit(root)
	return slices.Clip(w.paths), w.reads
}

// pathWalk is a walk through a syntax tree.
type pathWalk struct {
	variables []string
	local     []string // names that macros have declared, which may hide variables
	paths     []Path
	reads     uint
}

func (w *pathWalk) visit(e ast.Expr) {
	if p, ok := w.path(e); ok {
		w.reads |= 1 << p.variable
		if len(w.paths) < MaxPaths && !slices.ContainsFunc(w.paths, func(other Path) bool { return other.text == p.text }) {
			w.paths = append(w.paths, p)
		}
		return
	}
	switch e.Kind() {
	case ast.SelectKind:
		w.visit(e.AsSelect().Operand())
	case ast.CallKind:
		for _, operand := range Operands(e.AsCall()) {
			w.visit(operand)
		}
	case ast.ListKind:
		for _, item := range e.AsList().Elements() {
			w.visit(item)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			w.visit(entry.AsMapEntry().Key())
			w.visit(entry.AsMapEntry().Value())
		}
	case ast.ComprehensionKind:
		w.comprehension(e.AsComprehension())
	}
}

// comprehension visits the expansion of a macro, whose parts see different names.
func (w *pathWalk) comprehension(fold ast.ComprehensionExpr) {
	w.visit(fold.IterRange())
	w.visit(fold.AccuInit())
	outer := len(w.local)
	w.local = append(w.local, fold.AccuVar(), fold.IterVar())
	if fold.HasIterVar2() {
		w.local = append(w.local, fold.IterVar2())
	}
	w.visit(fold.LoopCondition())
	w.visit(fold.LoopStep())
	w.local = w.local[:outer+1] // the result sees only the accumulator
	w.visit(fold.Result())
	w.local = w.local[:outer]
}

// path reads an expression that is a path.
func (w *pathWalk) path(e ast.Expr) (Path, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		name, global := strings.CutPrefix(e.AsIdent(), ".")
		variable := slices.Index(w.variables, name)
		return Path{text: name, variable: variable}, variable >= 0 && (global || !slices.Contains(w.local, name))
	case ast.SelectKind:
		p, ok := w.path(e.AsSelect().Operand())
		return p.field(e.AsSelect().FieldName()), ok
	case ast.CallKind:
		switch call := e.AsCall(); call.FunctionName() {
		case operators.OptSelect, operators.Index, operators.OptIndex:
			if field := call.Args()[1]; field.Kind() == ast.LiteralKind {
				if name, text := field.AsLiteral().(types.String); text {
					p, ok := w.path(call.Args()[0])
					return p.field(string(name)), ok
				}
			}
		}
	}
	return Path{}, false
}

// field returns the path of a field of what is at p.
func (p Path) field(name string) Path {
	if isFieldName(name) {
		p.text += "." + name
	} else {
		p.text += "[" + strconv.Quote(name) + "]"
	}
	p.fields = append(slices.Clip(p.fields), name)
	return p
}

// isFieldName reports whether a name may follow a dot.
func isFieldName(name string) bool {
	for i, c := range []byte(name) {
		if letter := c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z'; !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
