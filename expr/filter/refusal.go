package filter

import (
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"github.com/manifold-es/manifold/expr"
)

const keepHint = "have the projection keep the result in a separate field, and query that"

// This file refuses what a filter cannot do, with a hint what to write instead.

func (f *translator) wholeDocument(e ast.Expr) *expr.CompileError {
	return f.Fail(e, "name a field, as in doc.status", "a filter cannot compare or test the document as a whole")
}

func (f *translator) fieldWithField(e ast.Expr) *expr.CompileError {
	return f.Fail(e, keepHint, "a filter compares a field with a constant, not with another field")
}

func (f *translator) unwrapFirst(e ast.Expr) *expr.CompileError {
	return f.Fail(e, "write .orValue(...) after it, or test it with has()", "an optional value cannot be compared or tested as it is")
}

// noScalar refuses a constant that cannot be compared with a single value of a document.
func (f *translator) noScalar(constant operand) *expr.CompileError {
	switch constant.value.(type) {
	case expr.Timestamp, expr.Duration:
		return f.Fail(constant.at, "moments are strings in documents: write doc.at >= \"2026-01-31T00:00:00Z\"", "no document has %s in it", expr.Describe(constant.value))
	case expr.List, *expr.Object:
		return f.Fail(constant.at, "write \"vip\" in doc.tags for an element, doc.field in [a, b] for one of several values, doc.customer.name for what is in an object",
			"a filter compares single values, not %s", expr.Describe(constant.value))
	case *expr.Optional:
		return f.unwrapFirst(constant.at)
	}
	return f.Fail(constant.at, "", "a filter cannot compare with %s", expr.Describe(constant.value))
}

// refuse says why a database cannot evaluate a part that depends on the document.
func (f *translator) refuse(e ast.Expr) *expr.CompileError {
	switch e.Kind() {
	case ast.ComprehensionKind:
		return f.refuseMacro(e)
	case ast.ListKind:
		return f.Fail(e, "write each comparison by itself, joined by &&", "a list in a filter is made of constants, not of fields")
	case ast.MapKind:
		return f.Fail(e, "write each comparison by itself, joined by &&", "an object in a filter is made of constants, not of fields")
	case ast.SelectKind:
		if e.AsSelect().IsTestOnly() {
			return f.refuseCondition(e)
		}
		return f.refuse(e.AsSelect().Operand())
	case ast.CallKind:
		return f.refuseCall(e)
	}
	return f.Fail(e, "", "a filter cannot ask for this")
}

// refuseCondition refuses a condition used as a value.
func (f *translator) refuseCondition(e ast.Expr) *expr.CompileError {
	return f.Fail(e, "write the condition itself, or ! before it", "a condition cannot be compared here")
}

func (f *translator) refuseCall(e ast.Expr) *expr.CompileError {
	function := e.AsCall().FunctionName()
	switch function {
	case operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, operators.Negate:
		return f.Fail(e, "calculate on the other side, as in doc.total > 100 * 1.19; or "+keepHint, "a filter cannot calculate with a field")
	case operators.Index, operators.OptIndex:
		return f.refuse(e.AsCall().Args()[0])
	case operators.OptSelect:
		return f.unwrapFirst(e)
	case operators.Conditional, operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Equals, operators.NotEquals,
		operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals, operators.In,
		"startsWith", "endsWith", "contains", "matches", "hasValue":
		return f.refuseCondition(e)
	case "size":
		return f.Fail(e, "have the projection keep the number in a separate field, and query that", "a filter cannot count what is in a field")
	case "timestamp", "duration":
		return f.Fail(e, "moments are strings in documents: write doc.at >= \"2026-01-31T00:00:00Z\"", "a filter cannot read a time from a field")
	case "int", "double", "string", "bool", "dyn", "type":
		return f.Fail(e, "values of different kinds are never equal, and only numbers compare with numbers, strings with strings: leave "+function+"() out", "a filter cannot convert a field")
	case "lowerAscii", "upperAscii", "trim":
		return f.Fail(e, "have the projection keep the changed string in a separate field, and query that", "a filter cannot change a string")
	case "or":
		return f.unwrapFirst(e)
	case "first", "last":
		return f.Fail(e, "to ask for an element, write \"vip\" in doc.tags; or "+keepHint, "a filter cannot look at a place of a list")
	}
	if strings.HasPrefix(function, "@") {
		return f.refuseMacro(e)
	}
	return f.Fail(e, keepHint, "a filter cannot call %s on a field", function)
}

// refuseMacro refuses a macro that walks over a list or names a value.
func (f *translator) refuseMacro(e ast.Expr) *expr.CompileError {
	switch f.Name(e) {
	case "bind":
		return f.Fail(e, "write the part out each time", "a filter cannot name a part of itself")
	case "optMap", "optFlatMap":
		return f.Fail(e, keepHint, "a filter cannot calculate with a field")
	case "exists", "exists_one", "existsOne", "all":
		return f.Fail(e, "to ask for an element, write \"vip\" in doc.tags; for anything else, "+keepHint, "a filter cannot walk over a list")
	}
	return f.Fail(e, keepHint, "a filter cannot walk over a list")
}
