package expr

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/checker"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/manifold-es/manifold/expr/scan"
)

// compile returns the nodes of an expression, and the compiler with the syntax tree.
func compile(scope Scope, source string) (root node, c *compiler, err error) {
	if len(source) > MaxSourceBytes {
		return nil, nil, &CompileError{Line: 1, Column: 1, Message: fmt.Sprintf("the expression has %d bytes; at most %d are allowed", len(source), MaxSourceBytes)}
	}
	if !utf8.ValidString(source) {
		return nil, nil, &CompileError{Line: 1, Column: 1, Message: "the expression is not in UTF-8"}
	}
	if strings.TrimSpace(source) == "" {
		return nil, nil, &CompileError{Line: 1, Column: 1, Message: "the expression is empty", Hint: emptyHint(scope)}
	}
	language, err := scopes[scope]()
	if err != nil {
		return nil, nil, err
	}
	// A bug in the parser must not crash the service.
	defer func() {
		if r := recover(); r != nil {
			root, c, err = nil, nil, &CompileError{Line: 1, Column: 1, Message: fmt.Sprintf("the expression cannot be compiled: %v", r), Source: source}
		}
	}()
	// Do not use issues.Err(): it joins all errors, each with its line of the source, in time and memory quadratic in
	// their number, which may be thousands.
	parsed, issues := language.env.Parse(source)
	if len(issues.Errors()) > 0 {
		return nil, nil, language.explainParsing(source, issues.Errors())
	}
	if ast.NodeCount(parsed.NativeRep()) > MaxNodes {
		return nil, nil, &CompileError{Line: 1, Column: 1, Message: fmt.Sprintf("the expression has more than %d parts", MaxNodes),
			Hint: "name what it repeats with cel.bind(name, value, expression)", Source: source}
	}
	// Unlike env.Check, this returns the types of a tree with errors, too.
	checked, failures := checker.Check(parsed.NativeRep(), parsed.Source(), language.checker)
	if all := failures.GetErrors(); len(all) > 0 {
		return nil, nil, language.explainChecking(source, checked, all)
	}
	c = &compiler{language: language, ast: checked}
	for slot, name := range scope.variables() {
		c.names = append(c.names, named{name, slot})
	}
	c.slots = len(c.names)
	root, failure := c.node(c.ast.Expr())
	if failure != nil {
		failure.Source = source
		return nil, nil, failure
	}
	return root, c, nil
}

func emptyHint(scope Scope) string {
	if scope == ScopeDocument {
		return "write a condition, such as doc.total > 0"
	}
	if scope.decides() {
		return "write command.price * command.qty, for example"
	}
	if subject := scope.subject(); subject != "" {
		return fmt.Sprintf("write %s to leave it as it is, null to remove it", subject)
	}
	return "write event.stream, for example"
}

// compiler turns a checked syntax tree into nodes.
type compiler struct {
	language *language
	ast      *ast.AST
	names    []named // the variables in scope, innermost last
	slots    int
}

// named is a variable's name and the slot where its value will be.
type named struct {
	name string
	slot int
}

func (c *compiler) at(e ast.Expr) position {
	location := c.ast.SourceInfo().GetStartLocation(e.ID())
	at := position{line: int32(max(1, location.Line())), column: int32(max(0, location.Column()) + 1)}
	if e.Kind() == ast.SelectKind {
		at.column++ // from the point to the field
	}
	return at
}

func (c *compiler) fail(e ast.Expr, hint, format string, args ...any) *CompileError {
	at := c.at(e)
	return &CompileError{Line: int(at.line), Column: int(at.column), Message: fmt.Sprintf(format, args...), Hint: hint}
}

func (c *compiler) node(e ast.Expr) (node, *CompileError) {
	switch e.Kind() {
	case ast.LiteralKind:
		return c.literal(e)
	case ast.IdentKind:
		return c.ident(e)
	case ast.SelectKind:
		return c.selection(e)
	case ast.CallKind:
		return c.call(e)
	case ast.ListKind:
		return c.list(e)
	case ast.MapKind:
		return c.object(e)
	case ast.ComprehensionKind:
		return c.comprehension(e)
	}
	return nil, c.fail(e, "write an object as {\"name\": value}", "objects of a named type do not exist here")
}

func (c *compiler) nodes(list []ast.Expr) ([]node, *CompileError) {
	out := make([]node, len(list))
	for i, e := range list {
		n, err := c.node(e)
		if err != nil {
			return nil, err
		}
		out[i] = n
	}
	return out, nil
}

func (c *compiler) literal(e ast.Expr) (node, *CompileError) {
	switch v := e.AsLiteral().(type) {
	case types.Null:
		return &constant{Null{}}, nil
	case types.Bool:
		return &constant{Bool(v)}, nil
	case types.Int:
		return &constant{Int(v)}, nil
	case types.Double:
		value, problem := finite(float64(v))
		if problem != nil {
			return nil, c.fail(e, "", "the number is too large")
		}
		return &constant{value}, nil
	case types.String:
		return &constant{String(v)}, nil
	case types.Uint:
		return nil, c.fail(e, fmt.Sprintf("write %d", uint64(v)), "there are no unsigned numbers; a number is a number")
	case types.Bytes:
		return nil, c.fail(e, "write a string without the b before it", "JSON has no bytes")
	}
	return nil, c.fail(e, "", "this literal is not part of the language")
}

func (c *compiler) ident(e ast.Expr) (node, *CompileError) {
	text := e.AsIdent()
	global, isGlobal := strings.CutPrefix(text, ".")
	names := c.names
	if isGlobal {
		text, names = global, c.names[:len(c.language.scope.variables())]
	}
	for i := len(names) - 1; i >= 0; i-- {
		if names[i].name == text {
			return &name{slot: names[i].slot}, nil
		}
	}
	if t := c.ast.GetType(e.ID()); t.Kind() == types.TypeKind {
		if slices.Contains([]string{"bytes", "uint"}, text) {
			return nil, c.fail(e, "", "there are no values of type %s", text)
		}
		return &constant{Type(text)}, nil
	}
	return nil, c.fail(e, "", "%s is not a name here", text)
}

func (c *compiler) selection(e ast.Expr) (node, *CompileError) {
	s := e.AsSelect()
	operand, err := c.node(s.Operand())
	if err != nil {
		return nil, err
	}
	if s.IsTestOnly() {
		return &hasField{operand, partOf(operand), s.FieldName(), path(s.Operand()), c.at(e)}, nil
	}
	return &selectField{operand, partOf(operand), s.FieldName(), path(s.Operand()), c.at(e)}, nil
}

// path returns an expression as written, for messages; anything but a chain of names becomes "the value".
func path(e ast.Expr) string {
	switch e.Kind() {
	case ast.IdentKind:
		if !strings.HasPrefix(e.AsIdent(), "@") {
			return e.AsIdent()
		}
	case ast.SelectKind:
		if operand := path(e.AsSelect().Operand()); operand != unnamed && !e.AsSelect().IsTestOnly() {
			return operand + "." + e.AsSelect().FieldName()
		}
	case ast.CallKind:
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.OptSelect:
			if operand := path(call.Args()[0]); operand != unnamed {
				return operand + ".?" + string(call.Args()[1].AsLiteral().(types.String))
			}
		case operators.Index:
			if operand := path(call.Args()[0]); operand != unnamed {
				return operand + "[...]"
			}
		}
	}
	return unnamed
}

const unnamed = "the value"

func (c *compiler) list(e ast.Expr) (node, *CompileError) {
	list := e.AsList()
	items, err := c.nodes(list.Elements())
	if err != nil {
		return nil, err
	}
	n := &listLiteral{items: items, at: c.at(e)}
	for _, i := range list.OptionalIndices() {
		if n.optional == nil {
			n.optional = make([]bool, len(items))
		}
		n.optional[i] = true
	}
	if values, all := constants(items); all && n.optional == nil {
		return &constant{NewList(values...)}, nil
	}
	return n, nil
}

// constants returns the values of nodes if all are constant.
func constants(nodes []node) ([]Value, bool) {
	values := make([]Value, len(nodes))
	for i, n := range nodes {
		known, ok := n.(*constant)
		if !ok {
			return nil, false
		}
		values[i] = known.value
	}
	return values, true
}

func (c *compiler) object(e ast.Expr) (node, *CompileError) {
	entries := e.AsMap().Entries()
	general := &objectLiteral{at: c.at(e)}
	record := map[string]node{}
	isRecord := true
	for _, entry := range entries {
		entry := entry.AsMapEntry()
		keyType := c.ast.GetType(entry.Key().ID())
		if kind := keyType.Kind(); kind != types.StringKind && kind != types.DynKind && kind != types.TypeParamKind {
			return nil, c.fail(entry.Key(), "write string(...) around it, or quote it", "the keys of an object are strings, not %s", cel.FormatCELType(keyType))
		}
		key, err := c.node(entry.Key())
		if err != nil {
			return nil, err
		}
		value, err := c.node(entry.Value())
		if err != nil {
			return nil, err
		}
		general.keys, general.values = append(general.keys, key), append(general.values, value)
		general.optional = append(general.optional, entry.IsOptional())
		known, isKnown := key.(*constant)
		if !isKnown {
			isRecord = false
			continue
		}
		text, isText := constantString(known)
		if !isText {
			return nil, c.fail(entry.Key(), "quote it", "the keys of an object are strings")
		}
		if _, twice := record[text]; twice {
			return nil, c.fail(entry.Key(), "", "the key %q occurs twice in one object", scan.Clip(text))
		}
		record[text] = value
		isRecord = isRecord && !entry.IsOptional()
	}
	if !isRecord {
		return general, nil
	}
	n := &recordLiteral{keys: slices.Sorted(maps.Keys(record)), at: c.at(e)}
	for _, key := range n.keys {
		n.names.addKey(key)
		n.values = append(n.values, record[key])
	}
	if values, all := constants(n.values); all {
		o := &Object{keys: n.keys, values: values}
		o.measure()
		return &constant{o}, nil
	}
	return n, nil
}

func (c *compiler) call(e ast.Expr) (node, *CompileError) {
	written := e.AsCall()
	exprs := Operands(written)
	// The second argument of .? is a name, not an expression.
	if written.FunctionName() == operators.OptSelect {
		operand, err := c.node(exprs[0])
		if err != nil {
			return nil, err
		}
		return &selectOptional{operand, partOf(operand), string(exprs[1].AsLiteral().(types.String)), path(exprs[0]), c.at(e)}, nil
	}
	args, err := c.nodes(exprs)
	if err != nil {
		return nil, err
	}
	return c.operation(e, args)
}

// operation compiles a call for any kind of operands.
func (c *compiler) operation(e ast.Expr, args []node) (node, *CompileError) {
	written, at := e.AsCall(), c.at(e)
	exprs := Operands(written)
	switch name := written.FunctionName(); name {
	case operators.Conditional:
		return &conditional{args[0], args[1], args[2], at}, nil
	case operators.LogicalAnd:
		return &logical{args, false, at}, nil
	case operators.LogicalOr:
		return &logical{args, true, at}, nil
	case operators.LogicalNot:
		return &not{args[0], at}, nil
	case operators.NotStrictlyFalse:
		return &notStrictlyFalse{args[0]}, nil
	case operators.Equals, operators.NotEquals:
		return &equality{args[0], args[1], name == operators.NotEquals, at}, nil
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return &comparison{args[0], args[1], strings.Trim(name, "_"), at}, nil
	case operators.In:
		return &membership{args[0], args[1], at}, nil
	case operators.Index, operators.OptIndex:
		return &index{args[0], args[1], name == operators.OptIndex, path(exprs[0]), at}, nil
	case operators.Negate:
		return &negation{args[0], at}, nil
	case operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo:
		return &calculation{strings.Trim(name, "_")[0], args[0], args[1], at}, nil
	case "or":
		return &alternative{args[0], args[1], true, orFunction, at}, nil
	case "orValue":
		return &alternative{args[0], args[1], false, orValueFunction, at}, nil
	case mapInsertFunction:
		return nil, c.fail(e, "", "this expression is not part of the language")
	}
	f, ok := c.language.functions[functionKey{written.FunctionName(), written.IsMemberFunction()}]
	if !ok {
		return nil, c.fail(e, "", "%s is not a function of the language", written.FunctionName())
	}
	n := &call{function: f, args: args, at: at}
	if f.name == "matches" {
		if pattern, ok := constantString(args[1]); ok {
			compiled, size, err := compilePattern(pattern)
			if err != nil {
				return nil, c.fail(exprs[1], "", "%s", err.Error())
			}
			return &patternMatch{args[0], compiled, size, n}, nil
		}
	}
	return n, nil
}

// constantString returns a constant string.
func constantString(n node) (string, bool) {
	if known, ok := n.(*constant); ok {
		text, ok := known.value.(String)
		return string(text), ok
	}
	return "", false
}

// neverReturns reports whether the whole expression can never return the kind, whatever its inputs. It also returns the
// kind that it does return, for people.
func (c *compiler) neverReturns(want types.Kind) (kind string, optional, never bool) {
	switch t := c.ast.GetType(c.ast.Expr().ID()); t.Kind() {
	case want, types.DynKind, types.TypeParamKind, types.AnyKind:
		return "", false, false
	case types.OpaqueKind:
		return "an optional value", true, true
	default:
		return cel.FormatCELType(t), false, true
	}
}
