package expr

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is the kind of fault that stopped an evaluation. It is a closed set.
type Kind string

const (
	// KindCost: the evaluation took more steps than MaxCost.
	KindCost Kind = "cost"
	// KindMemory: the created values took more than MaxMemory, or the result is larger than a document may be.
	KindMemory Kind = "memory"
	// KindType: an operator or function does not accept a value of this kind.
	KindType Kind = "type"
	// KindMissingField: an object has no such field.
	KindMissingField Kind = "missing-field"
	// KindIndex: an index is outside a list or string.
	KindIndex Kind = "index"
	// KindOverflow: a number, time or duration is out of its range.
	KindOverflow Kind = "overflow"
	// KindDivision: a division by zero.
	KindDivision Kind = "division-by-zero"
	// KindValue: a string is not a valid number, time or pattern.
	KindValue Kind = "value"
	// KindResult: the expression's result has the wrong kind for its purpose, such as a list for a document.
	KindResult Kind = "result"
	// KindInput: an event's data could not be read.
	KindInput Kind = "input"
	// KindStopped: the evaluation's meter ended it. A retry may have a result.
	KindStopped Kind = "stopped"
	// KindInternal: a bug in this package, caught so that it stops one evaluation only.
	KindInternal Kind = "internal"
)

// EvalError is a fault: why an expression has no result for these inputs. The same inputs give the same fault, unless
// it is of KindStopped.
type EvalError struct {
	Kind    Kind
	Line    int    // in the expression's text, from 1; 0 where the fault has no place in it
	Column  int    // in code points, from 1
	Message string // what was wrong
	Hint    string // what to write instead; may be empty
}

// Error gives place, message and hint in one line.
func (e *EvalError) Error() string {
	var b strings.Builder
	if e.Line > 0 {
		fmt.Fprintf(&b, "line %d, column %d: ", e.Line, e.Column)
	}
	b.WriteString(e.Message)
	if e.Hint != "" {
		b.WriteString("; ")
		b.WriteString(e.Hint)
	}
	return b.String()
}

// position is a place in an expression's text.
type position struct{ line, column int32 }

func (p position) fault(kind Kind, hint, format string, args ...any) *EvalError {
	return &EvalError{Kind: kind, Line: int(p.line), Column: int(p.column), Message: fmt.Sprintf(format, args...), Hint: hint}
}

// asFault turns any error into a fault at p, keeping one that is a fault already.
func (p position) asFault(err error) *EvalError {
	if fault, ok := err.(*EvalError); ok {
		if fault.Line == 0 {
			placed := *fault
			placed.Line, placed.Column = int(p.line), int(p.column)
			return &placed
		}
		return fault
	}
	if errors.Is(err, ErrTooLarge) {
		return p.fault(KindMemory, "", "%s", err.Error())
	}
	return p.fault(KindInput, "", "%s", err.Error())
}
