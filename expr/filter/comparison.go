package filter

import (
	"unicode/utf8"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// comparisons are the operators. mirrored is the operator with its sides exchanged; opposite is true where the operator
// is false.
var (
	comparisons = map[string]domain.Comparison{
		operators.Equals: domain.Equal, operators.NotEquals: domain.NotEqual, operators.Less: domain.Less,
		operators.LessEquals: domain.LessOrEqual, operators.Greater: domain.Greater, operators.GreaterEquals: domain.GreaterOrEqual,
	}
	mirrored = map[domain.Comparison]domain.Comparison{
		domain.Equal: domain.Equal, domain.NotEqual: domain.NotEqual, domain.Less: domain.Greater,
		domain.LessOrEqual: domain.GreaterOrEqual, domain.Greater: domain.Less, domain.GreaterOrEqual: domain.LessOrEqual,
	}
	opposite = map[domain.Comparison]domain.Comparison{
		domain.Equal: domain.NotEqual, domain.NotEqual: domain.Equal, domain.Less: domain.GreaterOrEqual,
		domain.LessOrEqual: domain.Greater, domain.Greater: domain.LessOrEqual, domain.GreaterOrEqual: domain.Less,
	}
	textTests = map[string]domain.TextTest{"startsWith": domain.StartsWith, "endsWith": domain.EndsWith, "contains": domain.Includes}
)

// relation translates a comparison with two sides, each of which may be one of several operands.
func (f *translator) relation(e, left, right ast.Expr) (condition, *expr.CompileError) {
	lefts, err := f.operand(left)
	if err != nil {
		return condition{}, err
	}
	rights, err := f.operand(right)
	if err != nil {
		return condition{}, err
	}
	out := condition{never, never}
	for _, a := range lefts {
		for _, b := range rights {
			c, err := f.compareOperands(e, a, b)
			if err != nil {
				return condition{}, err
			}
			out = out.orWhere(allOf(a.guard, b.guard), c)
			if err := f.bounded(e, out.holds, out.fails); err != nil {
				return condition{}, err
			}
		}
	}
	return out, nil
}

// compareOperands translates a comparison of two operands, each a field or a constant.
func (f *translator) compareOperands(e ast.Expr, a, b operand) (condition, *expr.CompileError) {
	function := e.AsCall().FunctionName()
	switch {
	case !a.isField() && !b.isField():
		return f.fold(e, a.value, b.value)
	case function == operators.In && b.isField() && len(b.path) == 0:
		return f.memberOfDocument(e, a)
	case a.isField() && len(a.path) == 0:
		return condition{}, f.wholeDocument(a.at)
	case b.isField() && len(b.path) == 0:
		return condition{}, f.wholeDocument(b.at)
	case a.isField() && b.isField():
		return condition{}, f.fieldWithField(e)
	case function == operators.In && a.isField():
		return f.oneOf(e, a, b)
	case function == operators.In:
		value, err := f.scalar(a)
		return leaf(func(not bool) domain.Predicate {
			return domain.Contains{Path: b.path, Value: value, Not: not, Place: f.place(e)}
		}), err
	case function == operators.Equals:
		return f.equal(e, a, b)
	case function == operators.NotEquals:
		c, err := f.equal(e, a, b)
		return c.not(), err
	case comparisons[function] != "":
		return f.ordered(e, a, b, comparisons[function])
	case !a.isField():
		return condition{}, f.Fail(e, "write doc.field."+function+"(...)", "%s looks into a field", function)
	}
	text, isText := b.value.(expr.String)
	if !isText {
		return condition{}, f.Fail(b.at, "", "%s takes a string, not %s", function, expr.Describe(b.value))
	}
	if err := f.checkString(b.at, string(text)); err != nil {
		return condition{}, err
	}
	if function == "matches" {
		pattern, err := domain.ParsePattern(string(text))
		if err != nil {
			return condition{}, f.Fail(b.at, "", "%s", err.Error())
		}
		return leaf(func(not bool) domain.Predicate {
			return domain.Matches{Path: a.path, Pattern: pattern, Not: not, Place: f.place(e)}
		}), nil
	}
	return leaf(func(not bool) domain.Predicate {
		return domain.Text{Path: a.path, Test: textTests[function], Text: string(text), Not: not, Place: f.place(e)}
	}), nil
}

// fold evaluates a comparison with constants on both sides.
func (f *translator) fold(e ast.Expr, a, b expr.Value) (condition, *expr.CompileError) {
	v, err := f.Operation(e, a, b)
	if err != nil {
		return condition{}, err
	}
	return known(v == expr.Bool(true)), nil
}

// equal translates a == b, where one is a field or both are constants.
func (f *translator) equal(e ast.Expr, a, b operand) (condition, *expr.CompileError) {
	if !a.isField() && !b.isField() {
		same, err := f.Equal(e, a.value, b.value)
		if err != nil {
			return condition{}, err
		}
		return known(same), nil
	}
	if b.isField() {
		a, b = b, a
	}
	value, err := f.scalar(b)
	return condition{f.compare(a, domain.Equal, value, e), f.compare(a, domain.NotEqual, value, e)}, err
}

// ordered translates a < b and similar comparisons, where one is a field.
func (f *translator) ordered(e ast.Expr, a, b operand, comparison domain.Comparison) (condition, *expr.CompileError) {
	if b.isField() {
		a, b, comparison = b, a, mirrored[comparison]
	}
	value, err := f.scalar(b)
	if err == nil && value.Kind == domain.ScalarNull {
		return condition{}, f.Fail(b.at, "write doc.field == null or doc.field != null", "nothing is before or after null")
	}
	return condition{f.compare(a, comparison, value, e), f.compare(a, opposite[comparison], value, e)}, err
}

func (f *translator) compare(field operand, comparison domain.Comparison, value domain.Scalar, e ast.Expr) domain.Predicate {
	return domain.Compare{Path: field.path, Comparison: comparison, Value: value, Place: f.place(e)}
}

// oneOf translates field in constants. For an object, its keys count.
func (f *translator) oneOf(e ast.Expr, field, constants operand) (condition, *expr.CompileError) {
	var items []expr.Value
	switch container := constants.value.(type) {
	case expr.List:
		for i := range container.Len() {
			items = append(items, container.At(i))
		}
	case *expr.Object:
		for i := range container.Len() {
			key, _ := container.Entry(i)
			items = append(items, expr.String(key))
		}
	default:
		return condition{}, f.Fail(e, "write doc.field in [a, b]; for a part of a string, doc.field.contains(part)", "`in` looks into a list or the keys of an object, not into %s", expr.Describe(constants.value))
	}
	if len(items) > MaxConstants {
		return condition{}, f.Fail(constants.at, "ask several times, each for a part of them", "the list has %d constants; a list in a filter may have %d", len(items), MaxConstants)
	}
	if len(items) == 0 {
		// No constant is equal, so it is false wherever there is a value.
		return condition{never, domain.Has{Path: field.path, Place: f.place(e)}}, nil
	}
	values := make([]domain.Scalar, len(items))
	for i, item := range items {
		var err *expr.CompileError
		if values[i], err = f.scalar(operand{value: item, at: constants.at}); err != nil {
			return condition{}, err
		}
	}
	return leaf(func(not bool) domain.Predicate {
		return domain.OneOf{Path: field.path, Values: values, Not: not, Place: f.place(e)}
	}), nil
}

// memberOfDocument translates "name" in doc.
func (f *translator) memberOfDocument(e ast.Expr, name operand) (condition, *expr.CompileError) {
	if name.isField() {
		return condition{}, f.fieldWithField(e)
	}
	text, isText := name.value.(expr.String)
	if !isText {
		return known(false), nil
	}
	return f.hasMember(e, domain.Path{string(text)}), f.checkString(name.at, string(text))
}

// scalar converts a constant that a field is compared with.
func (f *translator) scalar(constant operand) (domain.Scalar, *expr.CompileError) {
	switch v := constant.value.(type) {
	case expr.Null:
		return domain.Scalar{}, nil
	case expr.Bool:
		return domain.Scalar{Kind: domain.ScalarBool, Bool: bool(v)}, nil
	case expr.Int:
		return domain.Scalar{Kind: domain.ScalarInt, Int: int64(v)}, nil
	case expr.Double:
		return domain.Scalar{Kind: domain.ScalarDouble, Double: float64(v)}, nil
	case expr.String:
		if !utf8.ValidString(string(v)) {
			return domain.Scalar{}, f.Fail(constant.at, "", "the string is not UTF-8")
		}
		return domain.Scalar{Kind: domain.ScalarText, Text: string(v)}, f.checkString(constant.at, string(v))
	}
	return domain.Scalar{}, f.noScalar(constant)
}

// mentionsDocument reports whether a part depends on the document.
func mentionsDocument(e ast.Expr) bool {
	found := false
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(part ast.Expr) {
		if part.Kind() == ast.IdentKind && (part.AsIdent() == "doc" || part.AsIdent() == ".doc") {
			found = true
		}
	}))
	return found
}
