package expr

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The console's completion offers each function and method of projections, with its usage.
func TestConsoleCompletesEveryFunction(t *testing.T) {
	t.Parallel()
	l, err := scopes[ScopeProjection]()
	if err != nil {
		t.Fatal(err)
	}
	var known struct {
		Functions map[string]string `json:"functions"`
		Methods   map[string]string `json:"methods"`
	}
	known.Functions, known.Methods = map[string]string{}, map[string]string{}
	for key, f := range l.functions {
		switch {
		case strings.HasPrefix(key.name, "@"): // a macro's
		case key.member:
			known.Methods[key.name] = f.usage
		default:
			known.Functions[key.name] = f.usage
		}
	}
	want, err := json.MarshalIndent(known, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("..", "console", "web", "src", "functions.json")
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.TrimSpace(got), want) {
		t.Errorf("%s differs from the language; write into it, and run go generate ./console:\n%s", path, want)
	}
}
