package expr

import (
	"fmt"

	"github.com/manifold-es/manifold/domain"
)

// Upcaster is one compiled step of a chain of upcasters: event -> data in the next schema version. It is safe for
// concurrent use.
type Upcaster struct{ compiled }

// CompileUpcaster compiles an upcaster's expression. Errors are those of Compile.
func CompileUpcaster(source string) (*Upcaster, error) {
	return compileAs[Upcaster](ScopeEvent, source)
}

// Eval returns the event's data in its new form: any JSON value that the log accepts, usually an object, written by
// AppendJSON. The error is always an *EvalError.
func (u *Upcaster) Eval(event *Event) ([]byte, error) {
	v, fault := u.program.run(nil, event)
	if fault != nil {
		return nil, fault
	}
	if _, missing := v.(*Optional); missing {
		return nil, &EvalError{Kind: KindResult, Message: "an upcaster gives the event's data; this one gave an optional value", Hint: "unwrap it: event.data.?field.orValue({})"}
	}
	if fault := dataFault(measureOf(v)); fault != nil {
		return nil, fault
	}
	settled, err := settle(v)
	if err != nil {
		return nil, position{}.asFault(err)
	}
	if fault := dataFault(measureOf(settled)); fault != nil {
		return nil, fault
	}
	data, err := AppendJSON(nil, settled)
	if err != nil {
		return nil, position{}.asFault(err)
	}
	if len(data) > domain.MaxEventBytes {
		return nil, dataTooLarge()
	}
	return data, nil
}

// dataFault says why a value of this measure cannot be an event's data. The measured size may be several times the
// written one, so it only keeps values that are far too large from being written.
func dataFault(m measure) *EvalError {
	switch {
	case m.bytes > MaxDocumentBytes:
		return dataTooLarge()
	case m.depth > domain.MaxJSONDepth:
		return &EvalError{Kind: KindResult, Message: fmt.Sprintf("lists and objects are nested deeper than %d in the result", domain.MaxJSONDepth)}
	}
	return m.fault()
}

func dataTooLarge() *EvalError {
	return &EvalError{Kind: KindMemory, Message: fmt.Sprintf("the result is larger than %d bytes as JSON, which is what an event may have", domain.MaxEventBytes)}
}
