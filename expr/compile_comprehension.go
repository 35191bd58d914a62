package expr

import (
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// mapInsertFunction adds an entry in transformMap. Only cel-go's macros use it; it cannot be written in an expression.
const mapInsertFunction = "cel.@mapInsert"

// comprehension compiles the expansion of a macro.
func (c *compiler) comprehension(e ast.Expr) (node, *CompileError) {
	fold := e.AsComprehension()
	if isEmptyList(fold.IterRange()) && isLiteral(fold.LoopCondition(), types.False) {
		return c.binding(fold)
	}
	source, err := c.node(fold.IterRange())
	if err != nil {
		return nil, err
	}
	n := &comprehension{source: source, path: path(fold.IterRange()), second: -1, at: c.at(e)}
	if n.start, err = c.node(fold.AccuInit()); err != nil {
		return nil, err
	}
	outer := len(c.names)
	defer func() { c.names = c.names[:outer] }()
	n.result = c.declare(fold.AccuVar())
	n.first = c.declare(fold.IterVar())
	if fold.HasIterVar2() {
		n.second = c.declare(fold.IterVar2())
	}
	if done, err := c.collecting(n, fold); done || err != nil {
		return n, err
	}
	if n.proceed, err = c.node(fold.LoopCondition()); err != nil {
		return nil, err
	}
	if n.step, err = c.node(fold.LoopStep()); err != nil {
		return nil, err
	}
	c.names = c.names[:outer+1] // the result sees only its own variable
	n.finish, err = c.node(fold.Result())
	return n, err
}

// binding compiles a comprehension over nothing, which binds a name to a value.
func (c *compiler) binding(fold ast.ComprehensionExpr) (node, *CompileError) {
	value, err := c.node(fold.AccuInit())
	if err != nil {
		return nil, err
	}
	outer := len(c.names)
	defer func() { c.names = c.names[:outer] }()
	slot := c.declare(fold.AccuVar())
	body, err := c.node(fold.Result())
	if err != nil {
		return nil, err
	}
	return &binding{slot, value, body}, nil
}

// declare brings a name into scope. Each name has a separate slot, so inner names never overwrite outer ones.
func (c *compiler) declare(name string) int {
	slot := c.slots
	c.slots++
	c.names = append(c.names, named{name, slot})
	return slot
}

// collecting recognizes the forms that the macros map, filter and transform... expand to: accu + [x], insert(accu, k,
// v) or insert(accu, {k: v}), each optionally under a condition. The result's name begins with @, so nothing else can
// refer to it.
func (c *compiler) collecting(n *comprehension, fold ast.ComprehensionExpr) (bool, *CompileError) {
	accu := fold.AccuVar()
	if accu == "" || accu[0] != '@' || !isName(fold.Result(), accu) || !isLiteral(fold.LoopCondition(), types.True) {
		return false, nil
	}
	step := fold.LoopStep()
	var filter ast.Expr
	if step.Kind() == ast.CallKind && step.AsCall().FunctionName() == operators.Conditional {
		args := step.AsCall().Args()
		if !isName(args[2], accu) {
			return false, nil
		}
		filter, step = args[0], args[1]
	}
	if step.Kind() != ast.CallKind {
		return false, nil
	}
	args := step.AsCall().Args()
	if len(args) < 2 || !isName(args[0], accu) {
		return false, nil
	}
	var err *CompileError
	switch step.AsCall().FunctionName() {
	case operators.Add:
		if !isEmptyList(fold.AccuInit()) || args[1].Kind() != ast.ListKind || args[1].AsList().Size() != 1 || len(args[1].AsList().OptionalIndices()) > 0 {
			return false, nil
		}
		n.collecting = elements
		n.step, err = c.node(args[1].AsList().Elements()[0])
	case mapInsertFunction:
		n.collecting = entries
		if len(args) == 2 {
			n.step, err = c.node(args[1])
			break
		}
		entry := &entryOf{}
		if entry.key, err = c.node(args[1]); err == nil {
			entry.value, err = c.node(args[2])
		}
		n.step = entry
	default:
		return false, nil
	}
	if err == nil && filter != nil {
		n.filter, err = c.node(filter)
	}
	return true, err
}

func isName(e ast.Expr, name string) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == name }

func isEmptyList(e ast.Expr) bool { return e.Kind() == ast.ListKind && e.AsList().Size() == 0 }

func isLiteral(e ast.Expr, v types.Bool) bool {
	return e.Kind() == ast.LiteralKind && e.AsLiteral() == v
}
