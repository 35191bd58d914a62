package filter

import (
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// operand is one possible meaning of a part of a filter: a field, or a constant. If the part is conditional or
// optional, the meaning depends on the document: the guard says for which documents the operand applies. The guards of
// a part's operands exclude one another. If none of them holds, the part is a fault.
type operand struct {
	guard domain.Predicate
	path  domain.Path // of a field; empty, not nil, for the document itself
	value expr.Value  // of a constant
	at    ast.Expr
}

func (o operand) isField() bool { return o.path != nil }

// optional is what an optional value can hold, and the documents for which it holds nothing. The guard of a field does
// not cover the field itself, which may be missing.
type optional struct {
	values []operand
	none   domain.Predicate
}

// operand translates a part that is compared or tested.
func (f *translator) operand(e ast.Expr) ([]operand, *expr.CompileError) {
	if !mentionsDocument(e) {
		value, err := f.Constant(e)
		if _, isOptional := value.(*expr.Optional); isOptional && err == nil {
			return nil, f.unwrapFirst(e)
		}
		return []operand{{guard: always, value: value, at: e}}, err
	}
	if f.isOptional(e) {
		return nil, f.unwrapFirst(e)
	}
	if path, ok, err := f.path(e); ok || err != nil {
		return []operand{{guard: always, path: path, at: e}}, err
	}
	if e.Kind() != ast.CallKind {
		return nil, f.refuse(e)
	}
	args := expr.Operands(e.AsCall())
	switch e.AsCall().FunctionName() {
	case operators.Conditional:
		when, err := f.condition(args[0])
		if err != nil {
			return nil, err
		}
		yes, err := f.guarded(args[1], when.holds)
		if err != nil {
			return nil, err
		}
		no, err := f.guarded(args[2], when.fails)
		return append(yes, no...), err
	case "orValue":
		o, err := f.optional(args[0])
		if err != nil {
			return nil, err
		}
		other, err := f.guarded(args[1], o.none)
		return append(o.values, other...), err
	case "value":
		o, err := f.optional(args[0])
		return o.values, err
	}
	return nil, f.refuse(e)
}

// guarded translates a part that applies to some documents only.
func (f *translator) guarded(e ast.Expr, guard domain.Predicate) ([]operand, *expr.CompileError) {
	values, err := f.operand(e)
	if err != nil {
		return nil, err
	}
	return values, f.guard(e, values, guard)
}

func (f *translator) guard(e ast.Expr, values []operand, guard domain.Predicate) *expr.CompileError {
	for i := range values {
		values[i].guard = allOf(guard, values[i].guard)
		if err := f.bounded(e, values[i].guard); err != nil {
			return err
		}
	}
	return nil
}

// path translates a chain of names after doc: `doc.a.b`, `doc["odd name"]`, and doc itself. ok is false for anything
// else.
func (f *translator) path(e ast.Expr) (path domain.Path, ok bool, err *expr.CompileError) {
	var around ast.Expr
	switch {
	case e.Kind() == ast.IdentKind:
		return domain.Path{}, e.AsIdent() == "doc" || e.AsIdent() == ".doc", nil
	case e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly():
		around = e.AsSelect().Operand()
	case isCall(e, operators.Index):
		around = e.AsCall().Args()[0]
	}
	if around == nil || f.isOptional(around) {
		return nil, false, nil
	}
	if path, ok, err = f.path(around); !ok || err != nil {
		return nil, false, err
	}
	name, err := f.memberName(e)
	if err != nil {
		return nil, false, err
	}
	return append(slices.Clip(path), name), true, nil
}

// memberName returns the last name of a chain, as in .name, ["name"], .?name or [?"name"].
func (f *translator) memberName(e ast.Expr) (string, *expr.CompileError) {
	if e.Kind() == ast.SelectKind {
		return e.AsSelect().FieldName(), f.checkString(e, e.AsSelect().FieldName())
	}
	key := e.AsCall().Args()[1]
	if mentionsDocument(key) {
		return "", f.Fail(key, "write the name itself, as in doc.prices[\"EUR\"]", "the name of a field must be known when the filter is read")
	}
	value, err := f.Constant(key)
	if err != nil {
		return "", err
	}
	name, isText := value.(expr.String)
	if !isText {
		return "", f.Fail(e, "to ask for an element, write \"vip\" in doc.tags; for a certain place, have the projection keep that element in a separate field",
			"a filter cannot look at a place of a list")
	}
	return string(name), f.checkString(e, string(name))
}

// isOptional reports whether a part returns an optional value: .?a or [?"a"], a field after one, or x.or(y). Its type
// does not always show that, since the type of a field is unknown.
func (f *translator) isOptional(e ast.Expr) bool {
	switch {
	case e.Kind() == ast.SelectKind:
		return !e.AsSelect().IsTestOnly() && f.isOptional(e.AsSelect().Operand())
	case isCall(e, operators.Index):
		return f.isOptional(e.AsCall().Args()[0])
	}
	return isCall(e, operators.OptSelect) || isCall(e, operators.OptIndex) || isCall(e, "or")
}

func isCall(e ast.Expr, function string) bool {
	return e.Kind() == ast.CallKind && e.AsCall().FunctionName() == function
}

// optional translates a part that returns an optional value: doc.?a, doc[?"a"], fields after them, and x.or(y).
func (f *translator) optional(e ast.Expr) (optional, *expr.CompileError) {
	if !mentionsDocument(e) {
		value, err := f.Constant(e)
		if err != nil {
			return optional{}, err
		}
		constant, ok := value.(*expr.Optional)
		if !ok {
			return optional{}, f.refuse(e)
		}
		if value, ok = constant.Get(); !ok {
			return optional{none: always}, nil
		}
		return optional{[]operand{{guard: always, value: value, at: e}}, never}, nil
	}
	if isCall(e, "or") {
		args := expr.Operands(e.AsCall())
		first, err := f.optional(args[0])
		if err != nil {
			return optional{}, err
		}
		second, err := f.optional(args[1])
		if err != nil {
			return optional{}, err
		}
		// The first one's fields are guarded by their own presence, the opposite of first.none.
		err = f.guard(e, second.values, first.none)
		return optional{append(first.values, second.values...), allOf(first.none, second.none)}, err
	}
	var around ast.Expr
	switch {
	case e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly():
		around = e.AsSelect().Operand()
	case isCall(e, operators.OptSelect), isCall(e, operators.OptIndex), isCall(e, operators.Index):
		around = e.AsCall().Args()[0]
	default:
		return optional{}, f.refuse(e)
	}
	name, err := f.memberName(e)
	if err != nil {
		return optional{}, err
	}
	if f.isOptional(around) {
		o, err := f.optional(around)
		if err != nil {
			return optional{}, err
		}
		return f.extend(e, o, name)
	}
	if !isCall(e, operators.OptSelect) && !isCall(e, operators.OptIndex) {
		// Its evaluation is a fault for every document. Do not treat it as the optional field that was meant.
		return optional{}, f.Fail(e, "write a ? before the field's name: doc.?field, doc[?'field']", "expected a field that may be missing")
	}
	path, ok, err := f.path(around)
	switch {
	case err != nil:
		return optional{}, err
	case !ok:
		return optional{}, f.refuse(around)
	}
	return f.extend(e, optional{[]operand{{guard: always, path: path, at: around}}, never}, name)
}

// extend translates a field of an optional value. The result is empty if the value is missing, has no such field, or is
// null. If the value cannot have fields, it is a fault.
func (f *translator) extend(e ast.Expr, o optional, name string) (optional, *expr.CompileError) {
	out := optional{none: o.none}
	for _, v := range o.values {
		if !v.isField() {
			return optional{}, f.refuse(v.at)
		}
		path := append(slices.Clip(v.path), name)
		out.values = append(out.values, operand{guard: v.guard, path: path, at: e})
		out.none = anyOf(out.none, allOf(v.guard, domain.Has{Path: path, Not: true, Place: f.place(e)}))
		if err := f.bounded(e, out.none); err != nil {
			return optional{}, err
		}
	}
	return out, nil
}
