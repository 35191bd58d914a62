package expr

import (
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// eventUse is which fields of its event an expression may read.
type eventUse struct {
	whole  bool // it uses the event as a value, and so all fields
	fields map[string]struct{}
}

// useOf reads it off the syntax tree. A variable that is named event as well counts as the event: what is said to be used
// may then not be, but never the other way round.
func useOf(root ast.Expr) (use eventUse) {
	const event, global = "event", ".event"
	isEvent := func(e ast.Expr) bool {
		return e.Kind() == ast.IdentKind && (e.AsIdent() == event || e.AsIdent() == global)
	}
	use.fields = make(map[string]struct{})
	taken := make(map[int64]struct{}) // the places where the event stands before a field's name
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
		switch {
		case e.Kind() == ast.SelectKind && isEvent(e.AsSelect().Operand()):
			taken[e.AsSelect().Operand().ID()] = struct{}{}
			use.fields[e.AsSelect().FieldName()] = struct{}{}
		case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.OptSelect && isEvent(e.AsCall().Args()[0]):
			if name, ok := e.AsCall().Args()[1].AsLiteral().(types.String); ok {
				taken[e.AsCall().Args()[0].ID()] = struct{}{}
				use.fields[string(name)] = struct{}{}
			}
		case isEvent(e):
			if _, ok := taken[e.ID()]; !ok {
				use.whole = true
			}
		}
	}))
	return use
}
