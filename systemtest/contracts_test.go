package systemtest

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/manifold-es/manifold/embedded/pgtest"
)

// TypeScript's compiler accepts what manifold types generates, and narrows an event's data by its type. AsyncAPI's
// schema of documents accepts the service's contract, and the one with a tenant's events.
func TestContractsForOthers(t *testing.T) {
	t.Parallel()
	node := needed(t, "node")
	folder, err := filepath.Abs(filepath.Join("testdata", "contracts"))
	if err != nil {
		t.Fatal(err)
	}
	copied := installPackages(t, folder, "use.ts")
	at := inside(t, configuration(pgtest.Database(t)))
	_, u := newTenant(t, newUser(t, at, operatorKey), "acme")
	schemas, err := filepath.Glob("../schema/codegen/testdata/*.json") // named TYPE.VERSION.json, in order
	if err != nil || len(schemas) == 0 {
		t.Fatal(schemas, err)
	}
	for _, path := range schemas {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		eventType := name[:len(name)-len(".1.json")]
		u.must(t, http.StatusCreated, nil, "PUT", "/v1/schemas/"+eventType, []byte(`{"compatibility": "none", "schema": `+string(text)+`}`))
	}
	generate := exec.CommandContext(t.Context(), program(t), "types", "--lang", "typescript", "--all-versions", "--out", filepath.Join(copied, "events.ts"))
	generate.Env = append(os.Environ(), "MANIFOLD_URL=http://"+string(at.(fixed)), "MANIFOLD_KEY="+u.key)
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	check := exec.CommandContext(t.Context(), node, "node_modules/typescript/bin/tsc", "--noEmit", "--strict", "--exactOptionalPropertyTypes",
		"--target", "es2022", "--module", "nodenext", "use.ts")
	check.Dir = copied
	var said strings.Builder
	check.Stderr = &said
	if out, err := output(t, check); err != nil {
		t.Errorf("%v\n%s%s", err, out, said.String())
	}
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join(copied, "node_modules", "@asyncapi", "specs", "schemas", "3.0.0-without-$id.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/asyncapi.yaml", "/v1/asyncapi.json"} {
		a, err := u.call(t.Context(), 0, "GET", path, nil)
		if err != nil || a.status != http.StatusOK {
			t.Fatalf("%s: %v, %v", path, a, err)
		}
		var document any
		if err := yaml.Unmarshal(a.body, &document); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if err := schema.Validate(document); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		document.(map[string]any)["operations"].(map[string]any)["followAll"].(map[string]any)["action"] = "wait"
		if schema.Validate(document) == nil {
			t.Errorf("%s: an unknown action is accepted", path)
		}
	}
}
