package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGuideToSchemas(t *testing.T) {
	t.Parallel()
	runGuide(t, "schemas.md", 6)
}

func TestSchemaCommands(t *testing.T) {
	t.Parallel()
	url, _ := serve(t)
	environ := newTenant(t, url, "acme")
	folder := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	says := func(o outcome, code int, want ...string) {
		t.Helper()
		for _, text := range want {
			if o.code != code || !strings.Contains(o.out+o.err, text) {
				t.Errorf("it ends with %d and says\n%s%s\nwant %d and %q", o.code, o.out, o.err, code, text)
			}
		}
	}
	text := write("text.json", `{"type": "string"}`)
	says(run(t, environ, nil, "schema", "diff", "Noted", "-f", text), 0, "Noted has no schema yet")
	says(run(t, environ, nil, "schema", "put", "Noted", "-f", text, "--compatibility", "full"), 0, "Noted: version 1 added (full)")
	says(run(t, environ, strings.NewReader(`{"type":"string"}`), "schema", "put", "Noted", "-f", "-"), 0, "Noted: version 1 unchanged (full)")
	says(run(t, environ, nil, "schema", "diff", "Noted", "-f", text), 0, "compatible with version 1")
	number := write("number.json", `{"type": "number"}`)
	says(run(t, environ, nil, "schema", "put", "Noted", "-f", number), 1, "not full compatible", "/type: version 1 accepts string, the new schema only number", "(conflict)")
	says(run(t, environ, nil, "schema", "put", "Noted"), 1, "--file")
	says(run(t, environ, nil, "schema", "put", "Noted", "-f", write("bad.json", "{")), 1, "is not JSON")
	says(run(t, environ, nil, "schema", "list"), 0, "TYPE   VERSION  COMPATIBILITY  BY", "Noted  1        full")
	says(run(t, environ, nil, "schema", "get", "Noted"), 0, `{"type":"string"}`)
	says(run(t, environ, nil, "schema", "check", "Noted", "--events", write("events.json", `["a", 1]`)), 1, "event 1:\n  (whole): expected string, found integer", "1 of 2 events violate")
	says(run(t, environ, nil, "schema", "check", "Noted", "-f", number, "--events", write("events.json", `[1]`)), 0, "1 events, 0 invalid")
	says(run(t, environ, nil, "schema", "check", "Noted"), 1, "--last")
	says(run(t, environ, nil, "schema", "rule", "set", "note", "enforce", "--refuse-unknown"), 0, "note: enforce, unknown types: refuse")
	says(run(t, environ, nil, "schema", "rule", "list"), 0, "note      enforce  refuse")
	says(run(t, environ, nil, "schema", "rule", "set", "note", "strict"), 1, "mode")
	says(run(t, environ, nil, "schema", "delete", "Noted"), 1, "--yes")
	says(run(t, environ, nil, "schema", "delete", "Noted", "--yes"), 0, "")
	says(run(t, environ, nil, "schema", "get", "Noted"), 1, "Noted has no schema")
}
