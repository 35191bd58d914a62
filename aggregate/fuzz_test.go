package aggregate

import (
	"encoding/json"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// Any definition that a client sends is refused, folds, or gives a fault. It never causes a panic.
func FuzzDefinition(f *testing.F) {
	f.Add("sum", `{"sum": 0}`, "Added", `{"sum": state.sum + event.data.n}`, `{"n": 1}`)
	f.Add("sum", `{}`, "*", `merge(state, event.data)`, `[1]`)
	f.Add("a-b", `[]`, "", `null`, `1e400`)
	f.Add("", "\x00", "A B", `state.a.b[0] / 0`, `{"a": {"b": [1]}}`)
	f.Fuzz(func(t *testing.T, category, initial, eventType, expression, data string) {
		definition := Definition{Category: category, Initial: json.RawMessage(initial), On: map[string]string{eventType: expression}}
		if err := check(nil, definition); err != nil {
			if code(err) != domain.CodeInvalidDefinition {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		compiled, err := compile(nil, definition, nil)
		if err != nil {
			t.Fatalf("checked, but: %v", err)
		}
		var state *expr.Object
		for version := range int64(3) {
			event := domain.Event{Stream: "sum-1", Version: version + 1, Position: version + 1, Type: eventType, Data: json.RawMessage(data)}
			if state, err = compiled.next(nil, state, &event); err != nil {
				if code(err) != domain.CodeFaulted {
					t.Fatalf("folding gave %v", err)
				}
				return
			}
			written, err := encode(state)
			if err != nil {
				t.Fatalf("a state that was folded cannot be written: %v", err)
			}
			if state, err = decode(written); err != nil {
				t.Fatalf("a state that was written cannot be read: %v", err)
			}
		}
	})
}
