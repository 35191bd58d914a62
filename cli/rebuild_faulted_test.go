package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A tenant whose event the new definition cannot fold keeps its old documents. The operator and the tenant see that.
// The tenant skips the event, and the operator then includes the tenant.
func TestARebuildLeavesATenantBehind(t *testing.T) {
	t.Parallel()
	url, _ := serve(t)
	operator := []string{"MANIFOLD_URL=" + url, "MANIFOLD_OPERATOR_KEY=" + operatorKey}
	folder := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	must(t, operator, "projection", "apply", write("first.yaml", "name: orders\non: {Placed: '{\"n\": event.data.?n.orValue(0)}'}\n"))
	tenants := make(map[string][]string)
	for name, events := range map[string]string{"acme": `{"stream":"order-1","type":"Placed","data":{}}`, "umbrella": `{"stream":"order-1","type":"Placed","data":{"n":2}}`} {
		tenants[name] = newTenant(t, url, name)
		must(t, tenants[name], "import", "--name", "first", write(name+".ndjson", events+"\n"+`{"stream":"order-2","type":"Placed","data":{"n":3}}`+"\n"))
		documents(t, clientOf(t, tenants[name]), "orders", 2)
	}
	says := func(out string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("it says\n%s\nand not %q", out, want)
			}
		}
	}
	second := write("second.yaml", "name: orders\non: {Placed: '{\"n\": event.data.n * 2}'}\n")
	says(must(t, operator, "rebuild", "orders", "-f", second), "tenants that stay on their old documents: 1\n", "event 1 (", "is live (4 events, 2 documents, ")
	says(must(t, operator, "rebuild", "show", "orders"), "tenants that stay on their old documents: 1\n")
	says(must(t, operator, "rebuild", "faulted", "orders"), "TENANT", "event 1 (")
	says(must(t, tenants["acme"], "projection", "state", "orders"), "the last rebuild left it on its old documents: event 1 (", "manifold projection skip orders 1")
	if out := must(t, tenants["umbrella"], "projection", "state", "orders"); strings.Contains(out, "left it") {
		t.Errorf("the other tenant sees %s", out)
	}
	if o := run(t, operator, nil, "rebuild", "orders", "--max-faulted-tenants", "0"); o.code == 0 || !strings.Contains(o.err, "event 1 (") {
		t.Errorf("with no tenant to leave behind: %+v", o)
	}
	must(t, tenants["acme"], "projection", "skip", "orders", "1")
	says(must(t, operator, "rebuild", "orders", "--faulted"), "is live (2 events, 1 document, ")
	if o := run(t, operator, nil, "rebuild", "orders", "--faulted"); o.code == 0 || !strings.Contains(o.err, "has left no tenant behind") {
		t.Errorf("once more: %+v", o)
	}
	says(must(t, tenants["acme"], "projection", "skipped", "orders"), "2+")
	says(must(t, tenants["acme"], "projection", "unskip", "orders", "1"), "is no longer skipped")
}
