package expr

import (
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
)

// function is one function of the language: its signature and its implementation.
type function struct {
	name   string
	usage  string // for people: "string.substring(start[, end])"
	member bool   // called as x.name(...), where x is the first argument
	takes  [][]*cel.Type
	gives  *cel.Type
	apply  implementation
}

// implementation computes a call from its arguments. It must not keep args.
type implementation func(c *call, ev *evaluation, args []Value) (Value, *EvalError)

// method declares a function that is called as x.name(...).
func method(name, usage string, gives *cel.Type, apply implementation, takes ...[]*cel.Type) *function {
	return &function{name: name, usage: usage, member: true, gives: gives, takes: takes, apply: apply}
}

// on1, on2 and on3 make implementations of functions whose arguments each have one kind. Any other arguments are a
// mismatch.
func on1[A Value](apply func(c *call, ev *evaluation, a A) (Value, *EvalError)) implementation {
	return func(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
		a, ok := args[0].(A)
		if !ok {
			return c.mismatch(args)
		}
		return apply(c, ev, a)
	}
}

func on2[A, B Value](apply func(c *call, ev *evaluation, a A, b B) (Value, *EvalError)) implementation {
	return func(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
		a, okA := args[0].(A)
		b, okB := args[1].(B)
		if !okA || !okB {
			return c.mismatch(args)
		}
		return apply(c, ev, a, b)
	}
}

func on3[A, B, C Value](apply func(c *call, ev *evaluation, a A, b B, third C) (Value, *EvalError)) implementation {
	return func(c *call, ev *evaluation, args []Value) (Value, *EvalError) {
		a, okA := args[0].(A)
		b, okB := args[1].(B)
		third, okC := args[2].(C)
		if !okA || !okB || !okC {
			return c.mismatch(args)
		}
		return apply(c, ev, a, b, third)
	}
}

// optionalArgument returns the argument at a place, or a default for a call that omits it. ok is false if the argument
// has another kind.
func optionalArgument[A Value](args []Value, place int, byDefault A) (value A, ok bool) {
	if place >= len(args) {
		return byDefault, true
	}
	value, ok = args[place].(A)
	return value, ok
}

// call is name(args...) or x.name(args...).
type call struct {
	function *function
	args     []node
	at       position
}

func (n *call) eval(ev *evaluation) (Value, *EvalError) {
	if fault := ev.spend(1, n.at); fault != nil {
		return nil, fault
	}
	base := len(ev.stack)
	for _, arg := range n.args {
		v, fault := arg.eval(ev)
		if fault != nil {
			ev.stack = ev.stack[:base]
			return nil, fault
		}
		ev.stack = append(ev.stack, v)
	}
	result, fault := n.function.apply(n, ev, ev.stack[base:])
	ev.stack = ev.stack[:base]
	return result, fault
}

// fault returns a fault of this call.
func (n *call) fault(kind Kind, hint, format string, args ...any) (Value, *EvalError) {
	return nil, n.at.fault(kind, hint, "%s: %s", n.function.name, fmt.Sprintf(format, args...))
}

// mismatch returns the fault of a call with arguments of the wrong kinds.
func (n *call) mismatch(args []Value) (Value, *EvalError) {
	kinds := make([]string, len(args))
	for i, arg := range args {
		kinds[i] = Describe(arg)
	}
	hint := "it is called as " + n.function.usage
	if slices.ContainsFunc(args, func(v Value) bool { _, null := v.(Null); return null }) {
		hint += "; a field that is there may still be null"
	}
	return nil, n.at.fault(KindType, hint, "%s does not take %s", n.function.name, strings.Join(kinds, ", "))
}

// text allocates and returns a string that the call has created.
func (n *call) text(ev *evaluation, text string) (Value, *EvalError) {
	if fault := ev.allocate(len(text), n.at); fault != nil {
		return nil, fault
	}
	return String(text), nil
}

// Types for declarations. If a number of either kind is accepted, both are declared.
var (
	anyType    = cel.DynType
	stringType = cel.StringType
	intType    = cel.IntType
	listType   = cel.ListType(cel.TypeParamType("A"))
	mapType    = cel.MapType(cel.StringType, cel.DynType)
	anyMap     = cel.MapType(cel.TypeParamType("A"), cel.TypeParamType("B"))
	anyList    = cel.ListType(cel.DynType)
	otherList  = cel.ListType(cel.TypeParamType("B"))
	numbers    = []*cel.Type{cel.IntType, cel.DoubleType}
)

// one, two and three list the arguments of an overload.
func one(a *cel.Type) []*cel.Type         { return []*cel.Type{a} }
func two(a, b *cel.Type) []*cel.Type      { return []*cel.Type{a, b} }
func three(a, b, c *cel.Type) []*cel.Type { return []*cel.Type{a, b, c} }
