package expr

import (
	"fmt"
	"strings"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"github.com/manifold-es/manifold/domain"
)

// Limits of filters, in addition to those of every expression.
const (
	// MaxFilterLeaves is how many comparisons and field tests a filter may expand to. A conditional counts its
	// condition twice, and what it is compared with once for each branch.
	MaxFilterLeaves = 200
	// MaxFilterConstants is how many constants a list in a filter may contain.
	MaxFilterConstants = 1_000
	// MaxFilterTextBytes is the total length of a filter's constant texts.
	MaxFilterTextBytes = MaxSourceBytes
)

// CompileFilter compiles a filter: an expression of `doc` that returns a bool, in the part of the language that every
// database can answer. A document matches the predicate if and only if evaluating the expression on it, within the
// limits of an evaluation, returns true. The error is a *CompileError, unless the language itself cannot be set up.
//
// docs/reference/filters.md says what a filter may contain.
func CompileFilter(source string) (predicate domain.Predicate, err error) {
	_, c, err := compile(ScopeDocument, source)
	if err != nil {
		return nil, err
	}
	defer func() {
		if r := recover(); r != nil {
			predicate, err = nil, &CompileError{Line: 1, Column: 1, Message: fmt.Sprintf("the filter cannot be compiled: %v", r), source: source}
		}
	}()
	f := &filter{compiler: c, constants: evaluation{cost: MaxCost, most: MaxCost, memory: MaxMemory}, source: source}
	root, failure := f.condition(c.ast.Expr())
	if failure != nil {
		failure.source = source
		return nil, failure
	}
	return root.holds, nil
}

// filter translates a checked syntax tree into a predicate.
type filter struct {
	*compiler
	constants evaluation // one budget for all constants
	texts     int        // bytes of constant texts in leaves so far
	source    string
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

// allOf matches what all parts match. Its result has no And directly within another, and no And with a single part.
func allOf(parts ...domain.Predicate) domain.Predicate {
	kept := domain.And{}
	for _, part := range parts {
		switch part := part.(type) {
		case domain.And:
			kept = append(kept, part...)
		case domain.Or:
			if len(part) == 0 {
				return never
			}
			kept = append(kept, part)
		default:
			kept = append(kept, part)
		}
	}
	if len(kept) == 1 {
		return kept[0]
	}
	return kept
}

// anyOf matches what one of the parts matches, in the same form.
func anyOf(parts ...domain.Predicate) domain.Predicate {
	kept := domain.Or{}
	for _, part := range parts {
		switch part := part.(type) {
		case domain.Or:
			kept = append(kept, part...)
		case domain.And:
			if len(part) == 0 {
				return always
			}
			kept = append(kept, part)
		default:
			kept = append(kept, part)
		}
	}
	if len(kept) == 1 {
		return kept[0]
	}
	return kept
}

// leaves counts the parts that are neither And nor Or.
func leaves(p domain.Predicate) int {
	n := 0
	switch p := p.(type) {
	case domain.And:
		for _, part := range p {
			n += leaves(part)
		}
	case domain.Or:
		for _, part := range p {
			n += leaves(part)
		}
	default:
		n = 1
	}
	return n
}

// bounded refuses parts that have grown too large, before they grow further.
func (f *filter) bounded(e ast.Expr, parts ...domain.Predicate) *CompileError {
	for _, part := range parts {
		if leaves(part) > MaxFilterLeaves {
			return f.fail(e, "for one of many values write doc.field in [a, b, c]; a conditional counts its condition twice",
				"the filter has more than %d comparisons and tests", MaxFilterLeaves)
		}
	}
	return nil
}

// condition translates a part that returns a bool.
func (f *filter) condition(e ast.Expr) (condition, *CompileError) {
	c, err := f.unbounded(e)
	if err != nil {
		return condition{}, err
	}
	return c, f.bounded(e, c.holds, c.fails)
}

func (f *filter) unbounded(e ast.Expr) (condition, *CompileError) {
	switch {
	case !f.mentionsDocument(e):
		return f.truth(e)
	case e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly():
		return f.has(e)
	case e.Kind() != ast.CallKind:
		return f.truth(e)
	}
	args := operands(e.AsCall())
	switch e.AsCall().FunctionName() {
	case operators.LogicalNot:
		c, err := f.condition(args[0])
		return c.not(), err
	case operators.LogicalAnd:
		c, err := f.conditions(args)
		if err != nil {
			return condition{}, err
		}
		out := known(true)
		for _, part := range c {
			out = condition{allOf(out.holds, part.holds), anyOf(out.fails, part.fails)}
		}
		return out, nil
	case operators.LogicalOr:
		c, err := f.conditions(args)
		if err != nil {
			return condition{}, err
		}
		out := known(false)
		for _, part := range c {
			out = condition{anyOf(out.holds, part.holds), allOf(out.fails, part.fails)}
		}
		return out, nil
	case operators.Conditional:
		c, err := f.conditions(args)
		if err != nil {
			return condition{}, err
		}
		when, yes, no := c[0], c[1], c[2]
		return condition{
			anyOf(allOf(when.holds, yes.holds), allOf(when.fails, no.holds)),
			anyOf(allOf(when.holds, yes.fails), allOf(when.fails, no.fails)),
		}, nil
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals,
		operators.In, "startsWith", "endsWith", "contains", "matches":
		return f.relation(e, args[0], args[1])
	case "hasValue":
		return f.hasValue(e, args)
	}
	return f.truth(e)
}

func (f *filter) conditions(list []ast.Expr) ([]condition, *CompileError) {
	out := make([]condition, len(list))
	for i, e := range list {
		var err *CompileError
		if out[i], err = f.condition(e); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// truth translates a value used directly as a bool.
func (f *filter) truth(e ast.Expr) (condition, *CompileError) {
	values, err := f.operand(e)
	if err != nil {
		return condition{}, err
	}
	out := condition{never, never}
	for _, v := range values {
		var c condition
		switch constant, isBool := v.value.(Bool); {
		case v.isField() && len(v.path) == 0:
			return condition{}, f.wholeDocument(v.at)
		case v.isField():
			c = condition{f.compare(v, domain.Equal, domain.Scalar{Kind: domain.ScalarBool, Bool: true}, e),
				f.compare(v, domain.Equal, domain.Scalar{Kind: domain.ScalarBool}, e)}
		case isBool:
			c = known(bool(constant))
		default:
			return condition{}, f.fail(v.at, compareHint, "a filter gives true or false, and this is %s", describe(v.value))
		}
		out = condition{anyOf(out.holds, allOf(v.guard, c.holds)), anyOf(out.fails, allOf(v.guard, c.fails))}
		if err := f.bounded(e, out.holds, out.fails); err != nil {
			return condition{}, err
		}
	}
	return out, nil
}

// has translates has(doc.a.b).
func (f *filter) has(e ast.Expr) (condition, *CompileError) {
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
	return condition{domain.Has{Path: path, Place: f.place(e)}, domain.Has{Path: path, Not: true, Place: f.place(e)}}, nil
}

// hasValue translates x.hasValue() and x.hasValue(constant).
func (f *filter) hasValue(e ast.Expr, args []ast.Expr) (condition, *CompileError) {
	o, err := f.optional(args[0])
	if err != nil {
		return condition{}, err
	}
	if len(args) == 1 {
		return f.present(e, o), nil
	}
	if f.mentionsDocument(args[1]) {
		return condition{}, f.fieldWithField(args[1])
	}
	value, err := f.constant(args[1])
	if err != nil {
		return condition{}, err
	}
	out := condition{never, o.none}
	for _, v := range o.values {
		c, err := f.equal(e, v, operand{guard: always, value: value, at: args[1]})
		if err != nil {
			return condition{}, err
		}
		out = condition{anyOf(out.holds, allOf(v.guard, c.holds)), anyOf(out.fails, allOf(v.guard, c.fails))}
	}
	return out, nil
}

// present returns the condition that an optional has a value.
func (f *filter) present(e ast.Expr, o optional) condition {
	out := condition{never, o.none}
	for _, v := range o.values {
		there := v.guard
		if v.isField() && len(v.path) > 0 {
			there = allOf(there, domain.Has{Path: v.path, Place: f.place(e)})
		}
		out.holds = anyOf(out.holds, there)
	}
	return out
}

// at returns the position of a part; for a call, that of its name.
func (f *filter) at(e ast.Expr) position {
	at := f.compiler.at(e)
	at.column = int32(newCursor(f.source, int(at.line), int(at.column)).nameStart(int(at.column)))
	return at
}

func (f *filter) fail(e ast.Expr, hint, format string, args ...any) *CompileError {
	at := f.at(e)
	return &CompileError{Line: int(at.line), Column: int(at.column), Message: fmt.Sprintf(format, args...), Hint: hint}
}

// place returns the position of a leaf.
func (f *filter) place(e ast.Expr) domain.Place {
	at := f.at(e)
	return domain.Place(fmt.Sprintf("line %d, column %d", at.line, at.column))
}

// checkText refuses a constant text that no document can contain.
func (f *filter) checkText(e ast.Expr, text string) *CompileError {
	if strings.IndexByte(text, 0) >= 0 {
		return f.fail(e, "", "no document has a text with the character U+0000 in it")
	}
	if f.texts += len(text); f.texts > MaxFilterTextBytes {
		return f.fail(e, "", "the constant texts of a filter may have %d bytes together", MaxFilterTextBytes)
	}
	return nil
}
