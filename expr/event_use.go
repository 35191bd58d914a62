package expr

import (
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// targetNames are the variables of Scope.target.
var targetNames = []string{"key", "item"}

// eventUse is which fields of its event an expression may read.
type eventUse struct {
	all    bool // it uses the event as a value, and so all fields
	fields map[string]struct{}
	target bool // it uses a variable `key` or `item`
}

// useOf derives the use from the syntax tree. A local variable of a variable's name counts as the variable, so useOf
// may report too much but never too little.
func useOf(root ast.Expr) (use eventUse) {
	const event, global = "event", ".event"
	isEvent := func(e ast.Expr) bool {
		return e.Kind() == ast.IdentKind && (e.AsIdent() == event || e.AsIdent() == global)
	}
	use.fields = make(map[string]struct{})
	selected := make(map[int64]struct{}) // the parts where the event precedes a field's name
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		switch {
		case e.Kind() == ast.IdentKind && slices.Contains(targetNames, strings.TrimPrefix(e.AsIdent(), ".")):
			use.target = true
		case e.Kind() == ast.SelectKind && isEvent(e.AsSelect().Operand()):
			selected[e.AsSelect().Operand().ID()] = struct{}{}
			use.fields[e.AsSelect().FieldName()] = struct{}{}
		case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.OptSelect && isEvent(e.AsCall().Args()[0]):
			if name, ok := e.AsCall().Args()[1].AsLiteral().(types.String); ok {
				selected[e.AsCall().Args()[0].ID()] = struct{}{}
				use.fields[string(name)] = struct{}{}
			}
		case isEvent(e):
			if _, ok := selected[e.ID()]; !ok {
				use.all = true
			}
		}
	}))
	return use
}
