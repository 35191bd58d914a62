package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// deployed is a folder of definitions, and those who deploy it.
type deployed struct {
	t       *testing.T
	folder  string
	environ []string
}

func (d deployed) write(name, text string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.folder, name), []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// manifold runs a command, and checks its exit code and that its output contains all of the texts, in order.
func (d deployed) manifold(code int, args []string, texts ...string) {
	d.t.Helper()
	o := run(d.t, d.environ, nil, args...)
	said := o.out + o.err
	if o.code != code {
		d.t.Fatalf("manifold %s ends with %d, want %d:\n%s", strings.Join(args, " "), o.code, code, said)
	}
	rest := said
	for _, text := range texts {
		_, after, found := strings.Cut(rest, text)
		if !found {
			d.t.Fatalf("manifold %s does not say %q where it should:\n%s", strings.Join(args, " "), text, said)
		}
		rest = after
	}
}

func TestDiffAndApply(t *testing.T) {
	t.Parallel()
	url, _ := serve(t)
	environ := newTenant(t, url, "deployer")
	c := clientOf(t, environ)
	for _, stream := range []string{"order-1", "order-2"} {
		r, err := c.AppendToStreamWithBodyWithResponse(t.Context(), stream, nil, "application/json",
			strings.NewReader(`[{"type":"Placed","data":{"n":1}},{"type":"Placed","data":{"n":2}}]`))
		if err != nil || r.JSON201 == nil {
			t.Fatal(err, string(r.Body))
		}
	}
	for owner, environ := range map[string][]string{"tenant": environ, "operator": {"MANIFOLD_URL=" + url, "MANIFOLD_OPERATOR_KEY=" + operatorKey}} {
		d := deployed{t, t.TempDir(), environ}
		sums := "sums-" + owner
		d.manifold(1, []string{"diff", "-f", d.folder}, "has no definitions")
		d.write("sums.yaml", "name: "+sums+"\ninitial: {n: 0}\non:\n  Placed: |\n    merge(doc, {\n      \"n\": doc.n + event.data.n})\n")
		d.write("sums.test.yaml", "examples are no definitions")
		d.write("other.json", `{"name": "other-`+owner+`", "on": {"*": "doc"}}`)
		diff, apply := []string{"diff", "-f", d.folder}, []string{"apply", "-f", d.folder, "--yes"}
		d.manifold(2, diff, "+ other-"+owner+": create, 4 events", "on.*\n      + doc", "+ "+sums+": create, 4 events", "initial\n      + {\"n\":0}", "on.Placed\n      + merge(doc, {\n      +   \"n\"", "2 to create\n")
		d.manifold(1, []string{"apply", "-f", d.folder}, "2 to create", "nothing was changed: confirmation needs a terminal")
		d.manifold(2, diff, "2 to create")
		d.manifold(0, apply, "2 to create", "other-"+owner+": created", sums+": created")
		d.manifold(0, diff, "2 unchanged")
		d.manifold(0, apply, "2 unchanged")

		d.write("sums.yaml", "name: "+sums+"\ninitial: {n: 0}\non:\n  Placed: 'merge(doc, {\"n\": doc.n + 10 * event.data.n})'\n")
		if err := os.Remove(filepath.Join(d.folder, "other.json")); err != nil {
			t.Fatal(err)
		}
		d.manifold(2, diff, "~ "+sums+": rebuild, 4 events", "on.Placed\n      - merge(doc, {\n      -   \"n\"", "      + merge(doc, {\"n\": doc.n + 10", "1 to rebuild\n")
		d.manifold(2, append(diff, "--remove"), "- other-"+owner+": remove", "1 to rebuild, 1 to remove\n")
		d.manifold(0, append(apply, "--remove"), "other-"+owner+": removed", sums+": rebuild", sums+": build", "is live")
		d.manifold(0, append(diff, "--remove"), "1 unchanged\n")
		d.manifold(0, []string{"projection", "versions", sums}, "version 2: changed by ", "on.Placed", "version 1: created by ", "on.Placed")

		d.write("wrong.yaml", "name: wrong-"+owner+"\ninitial: {}\non:\n  A: doc\n  B: 'doc.'\ndatabase: nowhere\n")
		d.manifold(1, diff, filepath.Join(d.folder, "wrong.yaml")+":6: database: there is no database")
		d.write("wrong.yaml", "name: wrong-"+owner+"\ninitial: {}\non:\n  A: doc\n  B: 'doc.'\n")
		d.manifold(1, apply, filepath.Join(d.folder, "wrong.yaml")+":5: on.B:")
		d.write("wrong.yaml", "name: wrong-"+owner+"\nsauce: 1\n")
		d.manifold(1, diff, filepath.Join(d.folder, "wrong.yaml")+":2: unknown field \"sauce\"")
	}
	// The documents are what the last definition makes of them.
	got := documents(t, c, "sums-tenant", 4)
	var doc struct{ N int }
	if err := json.Unmarshal(got["order-1"], &doc); err != nil || doc.N != 30 || len(got) != 2 {
		t.Errorf("the documents are %s (%v)", got, err)
	}
	list, err := c.ListProjectionsWithResponse(t.Context())
	if err != nil || list.JSON200 == nil {
		t.Fatal(err)
	}
	for _, p := range list.JSON200.Projections {
		if !strings.HasPrefix(p.Name, "sums-") && p.Name != "usage" {
			t.Errorf("%s is there", p.Name)
		}
	}
}
