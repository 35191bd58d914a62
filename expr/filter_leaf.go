package expr

import (
	"slices"
	"unicode/utf8"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"github.com/manifold-es/manifold/domain"
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
func (f *filter) relation(e, left, right ast.Expr) (condition, *CompileError) {
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
			c, err := f.leaf(e, a, b)
			if err != nil {
				return condition{}, err
			}
			guard := allOf(a.guard, b.guard)
			out = condition{anyOf(out.holds, allOf(guard, c.holds)), anyOf(out.fails, allOf(guard, c.fails))}
			if err := f.bounded(e, out.holds, out.fails); err != nil {
				return condition{}, err
			}
		}
	}
	return out, nil
}

// leaf translates a comparison of two operands, each a field or a constant.
func (f *filter) leaf(e ast.Expr, a, b operand) (condition, *CompileError) {
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
		return condition{domain.Contains{Path: b.path, Value: value, Place: f.place(e)}, domain.Contains{Path: b.path, Value: value, Not: true, Place: f.place(e)}}, err
	case function == operators.Equals:
		return f.equal(e, a, b)
	case function == operators.NotEquals:
		c, err := f.equal(e, a, b)
		return c.not(), err
	case comparisons[function] != "":
		return f.ordered(e, a, b, comparisons[function])
	case !a.isField():
		return condition{}, f.fail(e, "write doc.field."+function+"(...)", "%s looks into a field", function)
	}
	text, isText := b.value.(String)
	if !isText {
		return condition{}, f.fail(b.at, "", "%s takes a text, not %s", function, describe(b.value))
	}
	if err := f.checkText(b.at, string(text)); err != nil {
		return condition{}, err
	}
	if function == "matches" {
		pattern, err := domain.ParsePattern(string(text))
		if err != nil {
			return condition{}, f.fail(b.at, "", "%s", err.Error())
		}
		return condition{domain.Matches{Path: a.path, Pattern: pattern, Place: f.place(e)}, domain.Matches{Path: a.path, Pattern: pattern, Not: true, Place: f.place(e)}}, nil
	}
	test := textTests[function]
	return condition{domain.Text{Path: a.path, Test: test, Text: string(text), Place: f.place(e)},
		domain.Text{Path: a.path, Test: test, Text: string(text), Not: true, Place: f.place(e)}}, nil
}

// fold evaluates a comparison with constants on both sides.
func (f *filter) fold(e ast.Expr, a, b Value) (condition, *CompileError) {
	n, err := f.operation(e, []node{&constant{a}, &constant{b}})
	if err != nil {
		return condition{}, err
	}
	v, err := f.evaluate(e, n)
	if err != nil {
		return condition{}, err
	}
	return known(v == Bool(true)), nil
}

// equal translates a == b, where one is a field or both are constants.
func (f *filter) equal(e ast.Expr, a, b operand) (condition, *CompileError) {
	if !a.isField() && !b.isField() {
		same, fault := f.constants.equal(a.value, b.value, f.at(e))
		if fault != nil {
			return condition{}, f.faulty(e, fault)
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
func (f *filter) ordered(e ast.Expr, a, b operand, comparison domain.Comparison) (condition, *CompileError) {
	if b.isField() {
		a, b, comparison = b, a, mirrored[comparison]
	}
	value, err := f.scalar(b)
	if err == nil && value.Kind == domain.ScalarNull {
		return condition{}, f.fail(b.at, "write doc.field == null or doc.field != null", "nothing is before or after null")
	}
	return condition{f.compare(a, comparison, value, e), f.compare(a, opposite[comparison], value, e)}, err
}

func (f *filter) compare(field operand, comparison domain.Comparison, value domain.Scalar, e ast.Expr) domain.Predicate {
	return domain.Compare{Path: field.path, Comparison: comparison, Value: value, Place: f.place(e)}
}

// oneOf translates field in constants. For an object, its keys count.
func (f *filter) oneOf(e ast.Expr, field, constants operand) (condition, *CompileError) {
	var items []Value
	switch container := constants.value.(type) {
	case List:
		items = container.items
	case *Object:
		for _, key := range container.keys {
			items = append(items, String(key))
		}
	default:
		return condition{}, f.fail(e, "write doc.field in [a, b]; for a part of a text, doc.field.contains(part)", "`in` looks into a list or the keys of an object, not into %s", describe(constants.value))
	}
	if len(items) > MaxFilterConstants {
		return condition{}, f.fail(constants.at, "ask several times, each for a part of them", "the list has %d constants; a list in a filter may have %d", len(items), MaxFilterConstants)
	}
	if len(items) == 0 {
		// No constant is equal, so it is false wherever there is a value.
		return condition{never, domain.Has{Path: field.path, Place: f.place(e)}}, nil
	}
	values := make([]domain.Scalar, len(items))
	for i, item := range items {
		var err *CompileError
		if values[i], err = f.scalar(operand{value: item, at: constants.at}); err != nil {
			return condition{}, err
		}
	}
	return condition{domain.OneOf{Path: field.path, Values: values, Place: f.place(e)}, domain.OneOf{Path: field.path, Values: values, Not: true, Place: f.place(e)}}, nil
}

// memberOfDocument translates "name" in doc.
func (f *filter) memberOfDocument(e ast.Expr, name operand) (condition, *CompileError) {
	if name.isField() {
		return condition{}, f.fieldWithField(e)
	}
	text, isText := name.value.(String)
	if !isText {
		return known(false), nil
	}
	path := domain.Path{string(text)}
	return condition{domain.Has{Path: path, Place: f.place(e)}, domain.Has{Path: path, Not: true, Place: f.place(e)}}, f.checkText(name.at, string(text))
}

// scalar converts a constant that a field is compared with.
func (f *filter) scalar(constant operand) (domain.Scalar, *CompileError) {
	switch v := constant.value.(type) {
	case Null:
		return domain.Scalar{}, nil
	case Bool:
		return domain.Scalar{Kind: domain.ScalarBool, Bool: bool(v)}, nil
	case Int, Double:
		return scalarOf(v), nil
	case String:
		if !utf8.ValidString(string(v)) {
			return domain.Scalar{}, f.fail(constant.at, "", "the text is not UTF-8")
		}
		return domain.Scalar{Kind: domain.ScalarText, Text: string(v)}, f.checkText(constant.at, string(v))
	}
	return domain.Scalar{}, f.noScalar(constant)
}

// constant evaluates a part that does not depend on the document.
func (f *filter) constant(e ast.Expr) (Value, *CompileError) {
	n, err := f.node(e)
	if err != nil {
		return nil, err
	}
	return f.evaluate(e, n)
}

func (f *filter) evaluate(e ast.Expr, n node) (Value, *CompileError) {
	f.constants.variables = slices.Grow(f.constants.variables[:0], f.slots)[:f.slots]
	v, fault := n.eval(&f.constants)
	if f.constants.exhausted != nil {
		fault = f.constants.exhausted
	}
	if fault != nil {
		return nil, f.faulty(e, fault)
	}
	return v, nil
}

// faulty refuses a constant part that is a fault: it could match no document.
func (f *filter) faulty(e ast.Expr, fault *EvalError) *CompileError {
	err := f.fail(e, fault.Hint, "%s", fault.Message)
	if fault.Line > 0 {
		err.Line, err.Column = fault.Line, fault.Column
	}
	return err
}

// mentionsDocument reports whether a part depends on the document.
func (f *filter) mentionsDocument(e ast.Expr) bool {
	found := false
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(part ast.Expr) {
		if part.Kind() == ast.IdentKind && (part.AsIdent() == "doc" || part.AsIdent() == ".doc") {
			found = true
		}
	}))
	return found
}
