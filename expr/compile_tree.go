package expr

import (
	"slices"

	"cel.dev/cel-go/common/ast"

	"github.com/manifold-es/manifold/expr/scan"
)

// Tree is the syntax tree of an expression, for compilers to something other than a Program, such as package filter.
// One goroutine at a time may use it.
type Tree struct {
	compiler  *compiler
	source    string
	constants evaluation // one budget for all constants
}

// Parse returns the tree of an expression that Compile accepts. Errors are those of Compile.
func Parse(scope Scope, source string) (*Tree, error) {
	_, c, err := compile(scope, source)
	if err != nil {
		return nil, err
	}
	return &Tree{compiler: c, source: source, constants: evaluation{cost: MaxCost, limit: MaxCost, memory: MaxMemory}}, nil
}

// Root returns the whole expression.
func (t *Tree) Root() ast.Expr { return t.compiler.ast.Expr() }

// Place returns the line and column of a part, both from 1; for a call, those of its name.
func (t *Tree) Place(e ast.Expr) (line, column int) {
	at := t.compiler.at(e)
	line, column = int(at.line), int(at.column)
	return line, scan.At(t.source, line, column).NameStart(column)
}

// Name returns the name that is written at a part, such as that of a macro, which the tree contains in expanded form.
func (t *Tree) Name(e ast.Expr) string {
	line, column := t.Place(e)
	return scan.At(t.source, line, column).Word()
}

// Fail returns an error at a part.
func (t *Tree) Fail(e ast.Expr, hint, format string, args ...any) *CompileError {
	err := t.compiler.fail(e, hint, format, args...)
	err.Line, err.Column = t.Place(e)
	err.Source = t.source
	return err
}

// Constant evaluates a part that depends on no variable. A fault of the evaluation becomes an error.
func (t *Tree) Constant(e ast.Expr) (Value, *CompileError) {
	n, err := t.compiler.node(e)
	if err != nil {
		return nil, err
	}
	return t.evaluate(e, n)
}

// Operation evaluates a call of two operands with constants in their place.
func (t *Tree) Operation(e ast.Expr, a, b Value) (Value, *CompileError) {
	n, err := t.compiler.operation(e, []node{&constant{a}, &constant{b}})
	if err != nil {
		return nil, err
	}
	return t.evaluate(e, n)
}

// Equal compares two constants as == does.
func (t *Tree) Equal(e ast.Expr, a, b Value) (bool, *CompileError) {
	line, column := t.Place(e)
	same, fault := t.constants.equal(a, b, position{int32(line), int32(column)})
	if fault != nil {
		return false, t.faulty(e, fault)
	}
	return same, nil
}

func (t *Tree) evaluate(e ast.Expr, n node) (Value, *CompileError) {
	t.constants.variables = slices.Grow(t.constants.variables[:0], t.compiler.slots)[:t.compiler.slots]
	v, fault := n.eval(&t.constants)
	if t.constants.exhausted != nil {
		fault = t.constants.exhausted
	}
	if fault != nil {
		return nil, t.faulty(e, fault)
	}
	return v, nil
}

func (t *Tree) faulty(e ast.Expr, fault *EvalError) *CompileError {
	err := t.Fail(e, fault.Hint, "%s", fault.Message)
	if fault.Line > 0 {
		err.Line, err.Column = fault.Line, fault.Column
	}
	return err
}

// Operands returns the operands of a call, the target of a member function first.
func Operands(call ast.CallExpr) []ast.Expr {
	if call.IsMemberFunction() {
		return append([]ast.Expr{call.Target()}, call.Args()...)
	}
	return call.Args()
}
