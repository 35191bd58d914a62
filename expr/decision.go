package expr

import (
	"fmt"
	"slices"
	"time"

	"cel.dev/cel-go/common/types"
)

// Inputs are the variables of a command's expressions, all of which depend on the request alone: a repetition of the
// decision gives the same result.
type Inputs struct {
	State    *Object   // state: of the stream before the command
	Command  *Object   // command: the command's data
	Metadata *Object   // metadata: of the request
	Now      time.Time // now: of the request
	ID       string    // id: the stream's name after its category
	UUID     string    // uuid: of the request
	Boundary *Object   // boundary: the states of the command's boundary, by name; nil: none
	Item     Value     // item, in ScopeItem
}

// values are the values of the variables by slot.
func (in *Inputs) values() [8]Value {
	boundary := in.Boundary
	if boundary == nil {
		boundary = noObject
	}
	return [...]Value{in.State, in.Command, in.Metadata, timestamp(in.Now), String(in.ID), String(in.UUID), boundary, in.Item}
}

var noObject = NewObject(nil)

// Gives is the kind of value that a decision's expression must give.
type Gives int

// The kinds. GivesValue is any value, as JSON has it.
const (
	GivesBool Gives = iota
	GivesText
	GivesList
	GivesObject
	GivesValue
)

var gives = [...]struct {
	kind       types.Kind
	words, how string
}{
	GivesBool:   {types.BoolKind, "true or false", "compare it with something, such as state.total < 1000"},
	GivesText:   {types.StringKind, "a string", "write string(x), or text in quotes"},
	GivesList:   {types.ListKind, "a list", "write [x] for a list of one"},
	GivesObject: {types.MapKind, "an object", `write {"name": value}`},
	GivesValue:  {types.DynKind, "a value", "unwrap it: command.?note.orValue(null)"},
}

// Decision is a compiled expression of a command. It is safe for concurrent use.
type Decision struct {
	compiled
	gives Gives
	paths []Path
	reads uint // the slots of the variables that it reads
}

// CompileDecision compiles an expression; scope is ScopeCommand or ScopeItem. Errors are those of Compile; an
// expression that can never give such a value is one.
func CompileDecision(scope Scope, want Gives, source string) (*Decision, error) {
	root, c, err := compile(scope, source)
	if err != nil {
		return nil, err
	}
	kind, optional, never := c.neverReturns(gives[want].kind)
	if never && (want != GivesValue || optional) {
		hint := gives[want].how
		if optional {
			hint = gives[GivesValue].how
		}
		at := c.fail(c.ast.Expr(), hint, "it must give %s; this one gives %s", gives[want].words, kind)
		at.Source = source
		return nil, at
	}
	paths, reads := pathsOf(c.ast.Expr(), scope.variables())
	return &Decision{compiled{c.program(root, source)}, want, paths, reads}, nil
}

// Reads reports whether the expression reads a variable.
func (d *Decision) Reads(variable string) bool {
	slot := slices.Index(d.program.scope.variables(), variable)
	return slot >= 0 && d.reads&(1<<slot) != 0
}

// Eval evaluates the expression; meter may end it. The result is of the wanted kind and has only JSON's kinds. The
// error is always an *EvalError.
func (d *Decision) Eval(meter *Meter, in *Inputs) (Value, error) {
	values := in.values()
	v, fault := d.program.runMetered(meter, values[:len(d.program.scope.variables())]...)
	if fault != nil {
		return nil, fault
	}
	fits := true
	switch d.gives {
	case GivesBool:
		_, fits = v.(Bool)
	case GivesText:
		_, fits = v.(String)
	case GivesList:
		_, fits = v.(List)
	case GivesObject:
		_, fits = v.(*Object)
	}
	if !fits {
		return nil, &EvalError{Kind: KindResult, Message: fmt.Sprintf("it must give %s; this one gave %s", gives[d.gives].words, Describe(v))}
	}
	if fault := measureOf(v).fault(); fault != nil {
		return nil, fault
	}
	settled, err := settle(v)
	if err != nil {
		return nil, position{}.asFault(err)
	}
	if fault := measureOf(settled).fault(); fault != nil {
		return nil, fault
	}
	return settled, nil
}

// Merge returns an object with the entries of both; of two entries with the same key, that of the second.
func Merge(object, other *Object) *Object { return merge(object, other) }
