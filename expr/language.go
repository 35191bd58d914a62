package expr

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/checker"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/decls"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/ext"
)

// language is the declarations and functions of a scope.
type language struct {
	scope     Scope
	env       *cel.Env
	checker   *checker.Env // of env
	functions map[functionKey]*function
}

type functionKey struct {
	name   string
	member bool
}

// scopes are built when first used; they are immutable.
var scopes = [...]func() (*language, error){
	ScopeProjection: sync.OnceValues(func() (*language, error) { return newLanguage(ScopeProjection) }),
	ScopeAggregate:  sync.OnceValues(func() (*language, error) { return newLanguage(ScopeAggregate) }),
	ScopeEvent:      sync.OnceValues(func() (*language, error) { return newLanguage(ScopeEvent) }),
	ScopeDocument:   sync.OnceValues(func() (*language, error) { return newLanguage(ScopeDocument) }),
	ScopeCommand:    sync.OnceValues(func() (*language, error) { return newLanguage(ScopeCommand) }),
	ScopeItem:       sync.OnceValues(func() (*language, error) { return newLanguage(ScopeItem) }),
	ScopeRecord:     sync.OnceValues(func() (*language, error) { return newLanguage(ScopeRecord) }),
}

func newLanguage(scope Scope) (*language, error) {
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, fmt.Errorf("expression types: %w", err)
	}
	if err := registry.RegisterType(types.OptionalType); err != nil {
		return nil, fmt.Errorf("expression types: %w", err)
	}
	options := []cel.EnvOption{
		cel.EnableHiddenAccumulatorName(true),
		cel.ParserRecursionLimit(MaxNesting),
		cel.ParserExpressionSizeLimit(MaxSourceBytes),
		cel.ExpressionNodeLimit(MaxNodes),
		cel.ParserErrorRecoveryLimit(4),
		cel.Macros(cel.StandardMacros...),
		cel.Macros(cel.ReceiverMacro("sortBy", 2, expandSortBy)),
		cel.OptionalTypes(),
		ext.Bindings(ext.BindingsVersion(0)),
		ext.TwoVarComprehensions(),
		cel.CustomTypeProvider(&provider{registry, scope.event()}), // after OptionalTypes, which adds a type to cel-go's provider
	}
	for _, name := range scope.variables() {
		options = append(options, cel.Variable(name, typeOfVariable(name)))
	}
	options = append(options, operatorDeclarations()...)
	l := &language{scope: scope, functions: map[functionKey]*function{}}
	for _, f := range functions() {
		l.functions[functionKey{f.name, f.member}] = f
		if f.gives == nil {
			continue // cel-go declares it
		}
		overloads := make([]cel.FunctionOpt, len(f.takes))
		for i, takes := range f.takes {
			id := overloadID(f.name, f.member, takes)
			if f.member {
				overloads[i] = cel.MemberOverload(id, takes, f.gives)
			} else {
				overloads[i] = cel.Overload(id, takes, f.gives)
			}
		}
		options = append(options, cel.Function(f.name, overloads...))
	}
	if l.env, err = cel.NewCustomEnv(options...); err != nil {
		return nil, fmt.Errorf("expression environment: %w", err)
	}
	if l.checker, err = checker.NewEnv(l.env.Container, l.env.CELTypeProvider()); err != nil {
		return nil, fmt.Errorf("expression environment: %w", err)
	}
	declared := slices.DeleteFunc(slices.Collect(maps.Values(l.env.Functions())), (*decls.FunctionDecl).IsDeclarationDisabled)
	if err := errors.Join(l.checker.AddIdents(l.env.Variables()...), l.checker.AddFunctions(declared...)); err != nil {
		return nil, fmt.Errorf("expression declarations: %w", err)
	}
	return l, nil
}

// functions returns all functions by name. A name that is called both as f(x) and as x.f() is listed twice.
func functions() []*function {
	return slices.Concat(conversionFunctions(), stringFunctions(), listFunctions(), objectFunctions(), mathFunctions(),
		timeFunctions(), optionalFunctions())
}

const eventType = "event"

func typeOfVariable(name string) *cel.Type {
	switch name {
	case "event":
		return cel.ObjectType(eventType)
	case "now":
		return cel.TimestampType
	case "id", "uuid", "key":
		return stringType
	case "item":
		return cel.DynType
	}
	return mapType // doc, state, command, metadata
}

func overloadID(name string, member bool, takes []*cel.Type) string {
	parts := make([]string, 0, len(takes)+2)
	parts = append(parts, name)
	if member {
		parts = append(parts, "of")
	}
	for _, t := range takes {
		parts = append(parts, t.String())
	}
	return strings.Join(parts, " ")
}

// operatorDeclarations declares the operands and results of operators. The declared kind of a numeric result follows
// from the operands' kinds, but evaluation goes by value. An operand whose type is known only then is a dyn here.
func operatorDeclarations() []cel.EnvOption {
	var options []cel.EnvOption
	declare := func(name string, gives *cel.Type, takes ...*cel.Type) {
		options = append(options, cel.Function(name, cel.Overload(overloadID(name, false, takes), takes, gives)))
	}
	declare(operators.Conditional, anyType, cel.BoolType, anyType, anyType)
	declare(operators.LogicalAnd, cel.BoolType, cel.BoolType, cel.BoolType)
	declare(operators.LogicalOr, cel.BoolType, cel.BoolType, cel.BoolType)
	declare(operators.LogicalNot, cel.BoolType, cel.BoolType)
	declare(operators.NotStrictlyFalse, cel.BoolType, cel.BoolType)
	declare(operators.Equals, cel.BoolType, anyType, anyType)
	declare(operators.NotEquals, cel.BoolType, anyType, anyType)
	declare(operators.In, cel.BoolType, anyType, listType)
	declare(operators.In, cel.BoolType, anyType, anyMap)
	declare(operators.Index, cel.TypeParamType("A"), listType, intType)
	declare(operators.Index, cel.TypeParamType("B"), anyMap, cel.TypeParamType("A"))
	declare(operators.Negate, cel.DurationType, cel.DurationType)
	for _, a := range numbers {
		declare(operators.Negate, a, a)
		for _, b := range numbers {
			gives := cel.DoubleType
			if a == cel.IntType && b == cel.IntType {
				gives = cel.IntType
			}
			declare(operators.Add, gives, a, b)
			declare(operators.Subtract, gives, a, b)
			declare(operators.Multiply, gives, a, b)
			declare(operators.Divide, cel.DoubleType, a, b)
			declare(operators.Modulo, intType, a, b) // 4.0 is a whole number too
			for _, name := range orders {
				declare(name, cel.BoolType, a, b)
			}
		}
	}
	declare(operators.Add, stringType, stringType, stringType)
	declare(operators.Add, anyList, listType, otherList)
	declare(operators.Add, cel.DurationType, cel.DurationType, cel.DurationType)
	declare(operators.Add, cel.TimestampType, cel.TimestampType, cel.DurationType)
	declare(operators.Add, cel.TimestampType, cel.DurationType, cel.TimestampType)
	declare(operators.Subtract, cel.DurationType, cel.DurationType, cel.DurationType)
	declare(operators.Subtract, cel.TimestampType, cel.TimestampType, cel.DurationType)
	declare(operators.Subtract, cel.DurationType, cel.TimestampType, cel.TimestampType)
	for _, name := range orders {
		for _, t := range []*cel.Type{stringType, cel.BoolType, cel.TimestampType, cel.DurationType} {
			declare(name, cel.BoolType, t, t)
		}
	}
	return options
}

var orders = []string{operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals}

// provider adds the type of `event` to CEL's own types, so that a field that events do not have is found at compile
// time. In a scope without an event, its type is unknown.
type provider struct {
	types.Provider
	event bool
}

func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if p.event && name == eventType {
		return types.NewTypeTypeWithParam(types.NewObjectType(eventType)), true
	}
	return nil, false // documents have no Protocol Buffers
}

func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	return slices.Clone(eventFields), name == eventType
}

func (p *provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if name != eventType || !slices.Contains(eventFields, field) {
		return nil, false
	}
	t := cel.StringType
	switch field {
	case "data", "metadata":
		t = cel.DynType
	case "version", "position":
		t = cel.IntType
	case "tags":
		t = cel.ListType(cel.StringType)
	case "occurredAt", "recordedAt":
		t = cel.TimestampType
	}
	return &types.FieldType{Type: t}, true
}

// expandSortBy turns list.sortBy(x, key) into cel.bind(all, list, @sortBy(all, all.map(x, key))).
func expandSortBy(factory cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
	if args[0].Kind() != ast.IdentKind {
		return nil, factory.NewError(args[0].ID(), "sortBy needs a simple name for the element, as in list.sortBy(x, x.price)")
	}
	const all = "@list"
	keys := factory.NewComprehension(factory.NewIdent(all), args[0].AsIdent(), factory.AccuIdentName(), factory.NewList(),
		factory.NewLiteral(types.True),
		factory.NewCall(operators.Add, factory.NewAccuIdent(), factory.NewList(args[1])),
		factory.NewAccuIdent())
	return factory.NewComprehension(factory.NewList(), "#unused", all, target, factory.NewLiteral(types.False),
		factory.NewIdent(all), factory.NewCall(sortByFunction, factory.NewIdent(all), keys)), nil
}
