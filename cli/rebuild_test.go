package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A rebuild is tried out, held for approval, swapped and undone, as people do it on the command line.
func TestRebuild(t *testing.T) {
	t.Parallel()
	environ := sharedTenant(t, "rebuilder")
	folder := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	events := write("events.ndjson", `{"stream":"order-1","type":"Placed","data":{"n":1}}
{"stream":"order-2","type":"Placed","data":{"n":2}}
{"stream":"order-3","type":"Placed","data":{"n":3}}
`)
	first := write("first.yaml", "name: orders\non: {Placed: '{\"n\": event.data.n}'}\n")
	second := write("second.yaml", "name: orders\non: {Placed: 'event.data.n == 3 ? null : {\"n\": event.data.n * event.data.n}'}\n")
	must(t, environ, "import", "--name", "events", events)
	must(t, environ, "projection", "apply", first)
	documents(t, clientOf(t, environ), "orders", 3)
	says := func(out string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("it says\n%s\nand not %q", out, want)
			}
		}
	}
	says(must(t, environ, "rebuild", "orders", "--dry-run", "--definition", second),
		"a dry run built 2 documents from 3 events", "0 documents are new, 1 are gone, 1 are changed, 1 are the same", "- order-3 (tenant ", "~ order-2 (tenant ", "    n: 2 -> 4\n")
	says(must(t, environ, "rebuild", "orders", "-f", second, "--approve", "manual", "--keep", "30m"),
		"waits for approval: manifold rebuild approve orders", "1 are changed")
	says(must(t, environ, "rebuild", "list", "orders"), "awaiting-approval", "reported", "key ")
	says(must(t, environ, "rebuild", "diff", "orders"), "~ order-2 (tenant ", "): n\n- order-3 (tenant ", "0 documents are new, 1 are gone, 1 are changed, 0 are unsettled\n")
	says(must(t, environ, "rebuild", "diff", "orders", "-o", "ndjson"), `"id":"order-2","kind":"changed","fields":["n"],"live":{"n":2},"built":{"n":4}`, `"id":"order-3","kind":"gone","live":{"n":3}`)
	says(must(t, environ, "rebuild", "pause", "orders"), "was asked to pause")
	says(must(t, environ, "rebuild", "show", "orders"), "3 of 3 events", "2 documents; the live build had 3", "    n: 2 -> 4\n")
	says(must(t, environ, "rebuild", "approve", "orders"), "is paused: manifold rebuild resume orders")
	says(must(t, environ, "rebuild", "resume", "orders"), "is live (3 events, 2 documents, ", "manifold rebuild rollback orders")
	says(must(t, environ, "rebuild", "rollback", "orders"), "is live (3 events, 3 documents, ")
	says(must(t, environ, "rebuild", "list", "orders"), "rolled-back", "swapped")
	for _, wrong := range []struct {
		args []string
		says string
	}{
		{[]string{"rebuild", "orders", "--assert", "doc.n < 2"}, "doc.n < 2"},
		{[]string{"rebuild", "orders", "--assert", "doc.n <"}, "assertions[0]"},
		{[]string{"rebuild", "orders", "--database", "nowhere"}, "database"},
		{[]string{"rebuild", "orders", "--keep", "soon"}, "keep"},
		{[]string{"rebuild", "cancel", "orders"}, "no rebuild of orders is under way"},
		{[]string{"rebuild", "none"}, "not-found"},
	} {
		if o := run(t, environ, nil, wrong.args...); o.code == 0 || !strings.Contains(o.err, wrong.says) {
			t.Errorf("manifold %s: %+v; it should say %q", strings.Join(wrong.args, " "), o, wrong.says)
		}
	}
	if got := documents(t, clientOf(t, environ), "orders", 3); len(got) != 3 {
		t.Errorf("there are %d documents", len(got))
	}
}
