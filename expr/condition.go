package expr

import (
	"fmt"
	"strings"

	"cel.dev/cel-go/common/types"
)

// Condition is a compiled filter of events: event -> bool. It is safe for concurrent use.
//
// It is evaluated here, event by event, so it may use the whole language. Package filter compiles filters of documents,
// which databases answer.
type Condition struct{ compiled }

// CompileCondition compiles a filter of events. Errors are those of Compile; an expression that can never return a bool
// is one.
func CompileCondition(source string) (*Condition, error) {
	if strings.TrimSpace(source) == "" {
		return nil, &CompileError{Line: 1, Column: 1, Message: "the filter is empty", Hint: `write a condition, such as event.type == "OrderPlaced", or leave the filter out`}
	}
	root, c, err := compile(ScopeEvent, source)
	if err != nil {
		return nil, err
	}
	if kind, optional, never := c.neverReturns(types.BoolKind); never {
		hint := "compare it with something, such as event.data.total > 100"
		if optional {
			hint = "unwrap it: event.data.?field.orValue(false)"
		}
		at := c.fail(c.ast.Expr(), hint, "a filter gives true or false; this one gives %s", kind)
		at.Source = source
		return nil, at
	}
	program := c.program(root, source)
	program.cost = MaxConditionCost
	return &Condition{compiled{program}}, nil
}

// Eval reports whether the filter is true for an event. The error is always an *EvalError; any result but a bool is
// one.
func (c *Condition) Eval(event *Event) (bool, error) {
	v, fault := c.program.run(nil, event)
	if fault != nil {
		return false, fault
	}
	holds, ok := v.(Bool)
	if !ok {
		return false, &EvalError{Kind: KindResult, Message: fmt.Sprintf("a filter gives true or false; this one gave %s", Describe(v))}
	}
	return bool(holds), nil
}
