// Package filter compiles filters of documents to predicates that every database answers.
//
// A filter is an expression of `doc` that returns a bool, in a part of the language that docs/reference/filters.md
// describes. A document matches the predicate if and only if evaluating the expression on it, within the limits of an
// evaluation, returns true. Compile returns the predicate. CompileOrder and CompileFields read the lists of paths that
// accompany a filter in a query.
//
// Package expr parses and checks the text. translator turns the tree into conditions (filter.go), which consist of
// comparisons (comparison.go) of operands (operand.go); it refuses everything else with a hint (refusal.go).
package filter

import (
	"fmt"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// Limits of filters, in addition to those of every expression.
const (
	// MaxLeaves is how many comparisons and field tests a filter may expand to. A conditional counts its
	// condition twice, and what it is compared with once for each branch.
	MaxLeaves = 200
	// MaxConstants is how many constants a list in a filter may contain.
	MaxConstants = 1_000
	// MaxStringBytes is the total length of a filter's constant strings.
	MaxStringBytes = expr.MaxSourceBytes
)

// Compile compiles a filter. The error is a *expr.CompileError, unless the language itself cannot be set up.
func Compile(source string) (predicate domain.Predicate, err error) {
	tree, err := expr.Parse(expr.ScopeDocument, source)
	if err != nil {
		return nil, err
	}
	// A bug in this package must not crash the service.
	defer func() {
		if r := recover(); r != nil {
			predicate, err = nil, &expr.CompileError{Line: 1, Column: 1, Message: fmt.Sprintf("the filter cannot be compiled: %v", r), Source: source}
		}
	}()
	f := &translator{Tree: tree}
	root, failure := f.condition(tree.Root())
	if failure != nil {
		return nil, failure
	}
	return root.holds, nil
}

// translator turns a checked syntax tree into a predicate.
type translator struct {
	*expr.Tree
	texts int // bytes of constant strings in leaves so far
}

// condition is a part of a filter that returns a bool: the documents for which it is true, and those for which it is
// false. For all other documents it is a fault. Keeping both moves negation down to the leaves.
type condition struct{ holds, fails domain.Predicate }

func (c condition) not() condition { return condition{c.fails, c.holds} }

var (
	always = domain.And{}
	never  = domain.Or{}
)

// known returns a condition that does not depend on the document.
func known(holds bool) condition {
	if holds {
		return condition{always, never}
	}
	return condition{never, always}
}

// leaf returns the condition of a test: predicate returns the test, or its opposite.
func leaf(predicate func(not bool) domain.Predicate) condition {
	return condition{predicate(false), predicate(true)}
}

// orWhere adds a condition that applies to the documents of a guard.
func (c condition) orWhere(guard domain.Predicate, other condition) condition {
	return condition{anyOf(c.holds, allOf(guard, other.holds)), anyOf(c.fails, allOf(guard, other.fails))}
}

// allOf matches what all parts match. Its result has no And directly within another, and no And with a single part.
func allOf(parts ...domain.Predicate) domain.Predicate {
	flat := domain.And{}
	for _, part := range parts {
		and, isAnd := part.(domain.And)
		or, isOr := part.(domain.Or)
		switch {
		case isAnd:
			flat = append(flat, and...)
		case isOr && len(or) == 0:
			return never
		default:
			flat = append(flat, part)
		}
	}
	if len(flat) == 1 {
		return flat[0]
	}
	return flat
}

// anyOf matches what one of the parts matches, in the same form.
func anyOf(parts ...domain.Predicate) domain.Predicate {
	flat := domain.Or{}
	for _, part := range parts {
		and, isAnd := part.(domain.And)
		or, isOr := part.(domain.Or)
		switch {
		case isOr:
			flat = append(flat, or...)
		case isAnd && len(and) == 0:
			return always
		default:
			flat = append(flat, part)
		}
	}
	if len(flat) == 1 {
		return flat[0]
	}
	return flat
}

// leaves counts the parts that are neither And nor Or.
func leaves(p domain.Predicate) (n int) {
	var parts []domain.Predicate
	switch p := p.(type) {
	case domain.And:
		parts = p
	case domain.Or:
		parts = p
	default:
		return 1
	}
	for _, part := range parts {
		n += leaves(part)
	}
	return n
}

// bounded refuses parts that have grown too large, before they grow further.
func (f *translator) bounded(e ast.Expr, parts ...domain.Predicate) *expr.CompileError {
	for _, part := range parts {
		if leaves(part) > MaxLeaves {
			return f.Fail(e, "for one of many values write doc.field in [a, b, c]; a conditional counts its condition twice",
				"the filter has more than %d comparisons and tests", MaxLeaves)
		}
	}
	return nil
}

// condition translates a part that returns a bool.
func (f *translator) condition(e ast.Expr) (condition, *expr.CompileError) {
	c, err := f.translate(e)
	if err != nil {
		return condition{}, err
	}
	return c, f.bounded(e, c.holds, c.fails)
}

func (f *translator) translate(e ast.Expr) (condition, *expr.CompileError) {
	switch {
	case !mentionsDocument(e):
		return f.truth(e)
	case e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly():
		return f.has(e)
	case e.Kind() != ast.CallKind:
		return f.truth(e)
	}
	args := expr.Operands(e.AsCall())
	switch e.AsCall().FunctionName() {
	case operators.LogicalNot:
		c, err := f.condition(args[0])
		return c.not(), err
	case operators.LogicalAnd, operators.LogicalOr, operators.Conditional:
		c, err := f.conditions(args)
		if err != nil {
			return condition{}, err
		}
		switch e.AsCall().FunctionName() {
		case operators.LogicalAnd:
			out := known(true)
			for _, part := range c {
				out = condition{allOf(out.holds, part.holds), anyOf(out.fails, part.fails)}
			}
			return out, nil
		case operators.LogicalOr:
			out := known(false)
			for _, part := range c {
				out = condition{anyOf(out.holds, part.holds), allOf(out.fails, part.fails)}
			}
			return out, nil
		}
		when, yes, no := c[0], c[1], c[2]
		return condition{never, never}.orWhere(when.holds, yes).orWhere(when.fails, no), nil
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals,
		operators.In, "startsWith", "endsWith", "contains", "matches":
		return f.relation(e, args[0], args[1])
	case "hasValue":
		return f.hasValue(e, args)
	}
	return f.truth(e)
}

func (f *translator) conditions(list []ast.Expr) ([]condition, *expr.CompileError) {
	out := make([]condition, len(list))
	for i, e := range list {
		var err *expr.CompileError
		if out[i], err = f.condition(e); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// truth translates a value used directly as a bool.
func (f *translator) truth(e ast.Expr) (condition, *expr.CompileError) {
	values, err := f.operand(e)
	if err != nil {
		return condition{}, err
	}
	out := condition{never, never}
	for _, v := range values {
		var c condition
		switch constant, isBool := v.value.(expr.Bool); {
		case v.isField() && len(v.path) == 0:
			return condition{}, f.wholeDocument(v.at)
		case v.isField():
			c = condition{f.compare(v, domain.Equal, domain.Scalar{Kind: domain.ScalarBool, Bool: true}, e),
				f.compare(v, domain.Equal, domain.Scalar{Kind: domain.ScalarBool}, e)}
		case isBool:
			c = known(bool(constant))
		default:
			return condition{}, f.Fail(v.at, "compare it: x != null, x > 0, x != ''", "a filter gives true or false, and this is %s", expr.Describe(v.value))
		}
		out = out.orWhere(v.guard, c)
		if err := f.bounded(e, out.holds, out.fails); err != nil {
			return condition{}, err
		}
	}
	return out, nil
}

// has translates has(doc.a.b).
func (f *translator) has(e ast.Expr) (condition, *expr.CompileError) {
	around := e.AsSelect().Operand()
	name, err := f.memberName(e)
	if err != nil {
		return condition{}, err
	}
	if f.isOptional(around) {
		o, err := f.optional(around)
		if err == nil {
			o, err = f.extend(e, o, name)
		}
		return f.present(e, o), err
	}
	path, ok, err := f.path(around)
	switch {
	case err != nil:
		return condition{}, err
	case !ok:
		return condition{}, f.refuse(around)
	}
	path = append(path, name)
	return f.hasMember(e, path), nil
}

// hasMember tests whether there is a member at a path.
func (f *translator) hasMember(e ast.Expr, path domain.Path) condition {
	return leaf(func(not bool) domain.Predicate { return domain.Has{Path: path, Not: not, Place: f.place(e)} })
}

// hasValue translates x.hasValue() and x.hasValue(constant).
func (f *translator) hasValue(e ast.Expr, args []ast.Expr) (condition, *expr.CompileError) {
	o, err := f.optional(args[0])
	if err != nil {
		return condition{}, err
	}
	if len(args) == 1 {
		return f.present(e, o), nil
	}
	if mentionsDocument(args[1]) {
		return condition{}, f.fieldWithField(args[1])
	}
	value, err := f.Constant(args[1])
	if err != nil {
		return condition{}, err
	}
	out := condition{never, o.none}
	for _, v := range o.values {
		c, err := f.equal(e, v, operand{guard: always, value: value, at: args[1]})
		if err != nil {
			return condition{}, err
		}
		out = out.orWhere(v.guard, c)
	}
	return out, nil
}

// present returns the condition that an optional has a value.
func (f *translator) present(e ast.Expr, o optional) condition {
	out := condition{never, o.none}
	for _, v := range o.values {
		holds := v.guard
		if v.isField() && len(v.path) > 0 {
			holds = allOf(holds, domain.Has{Path: v.path, Place: f.place(e)})
		}
		out.holds = anyOf(out.holds, holds)
	}
	return out
}

// place returns the position of a leaf.
func (f *translator) place(e ast.Expr) domain.Place {
	line, column := f.Place(e)
	return domain.Place(fmt.Sprintf("line %d, column %d", line, column))
}

// checkString refuses a constant string that no document can contain.
func (f *translator) checkString(e ast.Expr, text string) *expr.CompileError {
	if strings.IndexByte(text, 0) >= 0 {
		return f.Fail(e, "", "no document has a string with the character U+0000 in it")
	}
	if f.texts += len(text); f.texts > MaxStringBytes {
		return f.Fail(e, "", "the constant strings of a filter may have %d bytes together", MaxStringBytes)
	}
	return nil
}
