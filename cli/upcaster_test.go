package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUpcasterCommands(t *testing.T) {
	t.Parallel()
	url, _ := serve(t)
	environ := newTenant(t, url, "acme")
	operator := []string{"MANIFOLD_URL=" + url, "MANIFOLD_KEY=" + operatorKey}
	folder := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	must(t, environ, "projection", "apply", write("placed.yaml", "name: placed\non: {OrderPlaced: 'merge(doc, event.data)'}\n"))
	lines := write("events.ndjson", `{"stream":"order-1","type":"OrderPlaced","data":{"customer":"c-1"}}`+"\n"+`{"stream":"order-1","type":"Paid","data":{}}`+"\n")
	must(t, environ, "import", "--name", "events", lines)
	const expression = `{"customer": {"id": event.data.customer}}`

	says := func(o outcome, code int, want ...string) {
		t.Helper()
		for _, text := range want {
			if o.code != code || !strings.Contains(o.out+o.err, text) {
				t.Errorf("it ends with %d and says\n%s%s\nwant %d and %q", o.code, o.out, o.err, code, text)
			}
		}
	}
	says(run(t, environ, nil, "upcaster", "preview", "OrderPlaced", "1", expression, "--stream", "order-1"), 0,
		"OrderPlaced version 1 becomes 2\n", "before {\"customer\":\"c-1\"}\n", "after  {\"customer\":{\"id\":\"c-1\"}}\n", "Paid is unchanged\n")
	says(run(t, environ, nil, "upcaster", "preview", "OrderPlaced", "1", "event.data.nope", "--last", "5"), 1, "FAILS  upcaster OrderPlaced/1: line 1, column 12: ", "1 of 1 events cannot be upcast")
	given := write("given.json", `[{"type": "OrderPlaced", "data": {"customer": "<x>"}}]`)
	says(run(t, operator, strings.NewReader(expression), "upcaster", "preview", "OrderPlaced", "1", "-f", "-", "--events", given), 0, `after  {"customer":{"id":"<x>"}}`)
	says(run(t, environ, nil, "upcaster", "put", "OrderPlaced", "1", expression), 0, "OrderPlaced/1: created\n", "affects projection placed\n", "--rebuild")
	says(run(t, environ, nil, "upcaster", "put", "OrderPlaced", "1", "-f", write("expression", expression+"\n"), "--rebuild"), 0, "unchanged", "affects projection placed: rebuild ", "was started")
	says(run(t, environ, nil, "upcaster", "list"), 0, "OrderPlaced  1        false   "+expression)
	says(run(t, environ, nil, "upcaster", "put", "OrderPlaced", "one", expression), 1, `"one" is not a schema version`)
	says(run(t, environ, nil, "upcaster", "put", "OrderPlaced", "1"), 1, "--file")
	says(run(t, environ, nil, "upcaster", "put", "OrderPlaced", "1", "doc"), 1, "expression: line 1, column 1: ")
	says(run(t, environ, nil, "upcaster", "preview"), 1, "stream")
	says(run(t, environ, nil, "upcaster", "delete", "OrderPlaced", "1"), 0, "OrderPlaced/1: deleted\n", "affects projection placed\n")
	says(run(t, environ, nil, "upcaster", "delete", "OrderPlaced", "1"), 1, "there is no upcaster for version 1 of OrderPlaced")
}
