package expr

import (
	"fmt"
	"strings"

	"cel.dev/cel-go/common/types"
)

// Key is a compiled key of a projection: event -> the ids of its documents. It is safe for concurrent use.
type Key struct {
	compiled
	lists bool
}

// CompileKey compiles a key. Errors are those of Compile.
func CompileKey(source string) (*Key, error) {
	root, c, err := compile(ScopeEvent, source)
	if err != nil {
		return nil, err
	}
	_, _, never := c.neverReturns(types.ListKind)
	return &Key{compiled{c.program(root, source)}, !never}, nil
}

// Lists reports whether the key may give a list, and so several documents.
func (k *Key) Lists() bool { return k.lists }

// Eval returns the id that the expression gives: 1 to MaxKeyBytes bytes without U+0000. ok is false if it gave null. A
// list is an error, see Targets. The error is always an *EvalError.
func (k *Key) Eval(event *Event) (id string, ok bool, err error) {
	v, fault := k.program.run(nil, event)
	if fault != nil {
		return "", false, fault
	}
	if id, ok, fault = keyText(v); fault != nil {
		return "", false, fault
	}
	return id, ok, nil
}

// keyText reads an id; ok is false for null.
func keyText(v Value) (id string, ok bool, _ *EvalError) {
	switch v := v.(type) {
	case Null:
		return "", false, nil
	case String:
		if problem := keyProblem(string(v)); problem != "" {
			return "", false, &EvalError{Kind: KindResult, Message: problem}
		}
		return string(v), true, nil
	}
	return "", false, &EvalError{Kind: KindResult, Hint: "write string(...) around it", Message: fmt.Sprintf("a key is a string, or null where the event is not for this projection; this one is %s", Describe(v))}
}

// keyProblem says why a string cannot be a document's id.
func keyProblem(id string) string {
	switch {
	case id == "":
		return "the key is an empty string; write null where the event is not for this projection"
	case len(id) > MaxKeyBytes:
		return fmt.Sprintf("the key has %d bytes; at most %d are allowed", len(id), MaxKeyBytes)
	}
	if strings.IndexByte(id, 0) >= 0 {
		return "the key has a character U+0000, which databases cannot keep"
	}
	return ""
}

// CheckString refuses a key expression that can never return a string, whatever the event: such a key would not
// distinguish events. Errors are those of Compile.
func CheckString(source string) error {
	_, c, err := compile(ScopeEvent, source)
	if err != nil {
		return err
	}
	kind, optional, never := c.neverReturns(types.StringKind)
	if !never {
		return nil
	}
	root := c.ast.Expr()
	hint := "write string(...) around it"
	switch c.ast.GetType(root.ID()).Kind() {
	case types.NullTypeKind:
		hint = "write a field of the event, such as event.data.order"
	case types.ListKind, types.MapKind, types.StructKind:
		hint = "select the field that identifies the document, and write string(...) around it unless it is a string: string(event.data.number)"
	}
	if optional {
		hint = "unwrap it: event.data.?field.orValue(null)"
	}
	at := c.fail(root, hint, "it must give a string; this gives %s", kind)
	at.Source = source
	return at
}
