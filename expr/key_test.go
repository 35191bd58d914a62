package expr

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckString(t *testing.T) {
	t.Parallel()
	for _, source := range []string{
		`event.id`, `event.data.host`, `event.data.host + "/" + string(event.position)`, `string(event.position)`, `event.data.n > 3 ? "many" : null`,
		`dyn(1)`, `event.data.?host.orValue(null)`, `event.data.list[0]`,
	} {
		if err := CheckString(source); err != nil {
			t.Errorf("%s: %v", source, err)
		}
	}
	for source, want := range map[string]string{
		`event.position`:               "line 1, column 7: it must give a string; this gives int; write string(...) around it",
		`1.5`:                          "this gives double; write string(...)",
		`event.data.host == "a"`:       "line 1, column 17: it must give a string; this gives bool; write string(...)",
		`event.recordedAt`:             "this gives timestamp",
		`[event.data.host]`:            "this gives list(dyn); select the field",
		`{"host": event.data.host}`:    "this gives map(string, dyn); select the field",
		`null`:                         "this gives null; write a field",
		`event.data.?host`:             "this gives an optional value; unwrap it",
		"event.data.host.size()\n + 1": "line 2",
		`event.`:                       "line 1",
		``:                             "the expression is empty",
	} {
		err := CheckString(source)
		if failure, ok := errors.AsType[*CompileError](err); !ok || !strings.Contains(failure.Error(), want) {
			t.Errorf("%s: %v; want %q", source, err, want)
		}
	}
}
