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
	environ := sharedTenant(t, "acme")
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
	expression := write("number.cel", "1.5\n")
	must(t, environ, "projection", "apply", write("noted.yaml", "name: noted\non: {Noted: 'doc'}\n"))
	says(run(t, environ, nil, "schema", "put", "Noted", "-f", number, "--upcaster", expression, "--rebuild"), 0,
		"Noted: version 2 added (full)\nevents that name no schemaVersion are checked against version 1\naffects projection noted: rebuild ", "was started")
	says(run(t, environ, nil, "schema", "put", "Noted", "-f", number, "--upcaster", write("bad.cel", "1 +")), 1, "upcaster.expression: line 1")
	says(run(t, environ, nil, "schema", "put", "Noted", "-f", number, "--rebuild"), 1, "--rebuild needs --upcaster")
	says(run(t, environ, nil, "schema", "delete", "Noted", "--yes"), 0, "")
	says(run(t, environ, nil, "schema", "put", "Noted", "-f", text, "--compatibility", "full"), 0, "Noted: version 1 added (full)")
	says(run(t, environ, nil, "schema", "put", "Noted", "--personal", "/by,/for", "--version", "1"), 0, "Noted: personal fields of version 1: /by /for")
	says(run(t, environ, nil, "schema", "show", "Noted"), 0, "  personal: /by /for")
	says(run(t, environ, nil, "schema", "put", "Noted", "--personal", "", "--version", "1"), 0, "Noted: personal fields of version 1: none")
	says(run(t, environ, nil, "schema", "put", "Noted", "--version", "1"), 1, "--version needs --personal")
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

func TestTypesCommand(t *testing.T) {
	t.Parallel()
	environ := sharedTenant(t, "acme")
	for _, schema := range []string{`{"type":"object","required":["text"],"properties":{"text":{"type":"string"}}}`, `{"type":"object","properties":{"text":{"type":"string"},"by":{"enum":["ann","bob"]}}}`} {
		if o := run(t, environ, strings.NewReader(schema), "schema", "put", "Noted", "-f", "-"); o.code != 0 {
			t.Fatal(o.err)
		}
	}
	newest := must(t, environ, "types", "--lang", "typescript")
	if !strings.Contains(newest, "export interface Noted {\n  text?: string;\n  by?: \"ann\" | \"bob\";\n}\n") || strings.Contains(newest, "NotedV1") {
		t.Errorf("TypeScript is\n%s", newest)
	}
	if all := must(t, environ, "types", "--lang", "typescript", "--all-versions"); !strings.Contains(all, "export interface NotedV1 {\n  text: string;\n}\n") {
		t.Errorf("with all versions, TypeScript is\n%s", all)
	}
	file := filepath.Join(t.TempDir(), "notes.go")
	must(t, environ, "types", "--lang", "go", "--package", "notes", "--out", file)
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "package notes\n") || !strings.Contains(string(text), "type NotedBy string\n") {
		t.Errorf("Go is\n%s%v", text, err)
	}
	for want, arguments := range map[string][]string{
		"required flag":                   {},
		`"java": expected typescript`:     {"--lang", "java"},
		"only for --lang go":              {"--lang", "typescript", "--package", "x"},
		"is not the name of a Go package": {"--lang", "go", "--package", "a-b"},
		"no such file":                    {"--lang", "go", "--out", filepath.Join(t.TempDir(), "missing", "x.go")},
	} {
		if o := run(t, environ, nil, append([]string{"types"}, arguments...)...); o.code != 1 || !strings.Contains(o.err, want) {
			t.Errorf("types %v ends with %+v, want %q", arguments, o, want)
		}
	}
}
