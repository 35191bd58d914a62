package cli_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/client"
)

func TestProjectionDocuments(t *testing.T) {
	t.Parallel()
	url, _ := serve(t)
	acme, umbrella := newTenant(t, url, "acme"), newTenant(t, url, "umbrella")
	operator := []string{"MANIFOLD_URL=" + url, "MANIFOLD_OPERATOR_KEY=" + operatorKey}
	definition := `{"name": "orders", "on": {"Set": "event.data"}, "indexes": ["total"]}`
	for _, environ := range [][]string{acme, umbrella} {
		if o := run(t, environ, strings.NewReader(definition), "projection", "apply", "-"); o.code != 0 {
			t.Fatalf("apply: %+v", o)
		}
	}
	var lines strings.Builder
	for i := range 7 {
		fmt.Fprintf(&lines, `{"stream": "order-%d", "type": "Set", "data": {"total": %d, "customer": {"name": "c-%d", "city": "x"}}}`+"\n", i, i*i%5, i)
	}
	if o := run(t, acme, strings.NewReader(lines.String()), "import", "-", "--name", "orders"); o.code != 0 {
		t.Fatalf("import: %+v", o)
	}
	documents(t, clientOf(t, acme), "orders", 7)

	read := func(args ...string) (ids []string, out string) {
		t.Helper()
		out = must(t, acme, append([]string{"projection", "documents", "orders"}, args...)...)
		for line := range strings.Lines(out) {
			var document client.Document
			if err := json.Unmarshal([]byte(line), &document); err != nil {
				t.Fatalf("%v in the line %q", err, line)
			}
			ids = append(ids, strings.TrimPrefix(document.Id, "order-"))
		}
		return ids, out
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "0 1 2 3 4 5 6"},
		{[]string{"--page-size", "3"}, "0 1 2"},
		{[]string{"--page-size", "3", "--all"}, "0 1 2 3 4 5 6"},
		{[]string{"--page-size", "2", "--all", "--filter", "doc.total == 1 || doc.total == 4", "--order-by", "total desc"}, "2 3 1 4 6"},
		{[]string{"--filter", `doc.customer.name == "c-3"`}, "3"},
		{[]string{"--filter", "doc.total > 100"}, ""},
	} {
		if got, _ := read(c.args...); strings.Join(got, " ") != c.want {
			t.Errorf("%q gives %v, want %s", c.args, got, c.want)
		}
	}
	if _, out := read("--filter", "doc.total == 1", "--fields", "customer.name", "--page-size", "1"); out != `{"id":"order-1","position":2,"document":{"customer":{"name":"c-1"}}}`+"\n" {
		t.Errorf("with fields it prints %s", out)
	}
	const table = "ID       POSITION  customer                   total\n" +
		"order-0  1         {\"city\":\"x\",\"name\":\"c-0\"}  0\n" +
		"order-1  2         {\"city\":\"x\",\"name\":\"c-1\"}  1\n" +
		"order-2  3         {\"city\":\"x\",\"name\":\"c-2\"}  4\n"
	if out := must(t, acme, "projection", "documents", "orders", "-o", "table", "--all", "--filter", "doc.customer.name < 'c-3'"); out != table {
		t.Errorf("the table is\n%s", out)
	}
	var list []client.Document
	out := must(t, acme, "projection", "documents", "orders", "-o", "json", "--page-size", "3", "--all")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 7 || !strings.HasPrefix(out, "[\n  {\n    \"id\": \"order-0\",\n") {
		t.Errorf("the list is, with %v,\n%s", err, out)
	}
	if out := must(t, acme, "projection", "documents", "orders", "-o", "json", "--filter", "doc.total > 100"); out != "[]\n" {
		t.Errorf("the empty list is %s", out)
	}
	if out := must(t, acme, "projection", "documents", "orders", "-o", "yaml", "--page-size", "2", "--all"); strings.Count(out, "---\n") != 6 || !strings.HasPrefix(out, "id: \"order-0\"\nposition: 1\n") {
		t.Errorf("the YAML is\n%s", out)
	}
	if out := must(t, acme, "projection", "documents", "orders", "--count", "--filter", "doc.total == 1"); out != "3\n" {
		t.Errorf("the count is %q", out)
	}
	// What the other tenant has does not count, whoever asks.
	if out := must(t, umbrella, "projection", "documents", "orders", "--count"); out != "0\n" {
		t.Errorf("the other tenant's count is %q", out)
	}

	both := append(slices.Clone(operator), acme[1])
	for _, tenant := range []string{"acme", "umbrella"} {
		out := must(t, both, "projection", "documents", "orders", "--filter", "doc.total == 1", "--explain", "--tenant", tenant)
		if !strings.HasPrefix(out, "database default:\n") || !strings.Contains(strings.ToLower(out), "select ") {
			t.Errorf("it is explained by\n%s", out)
		}
	}
	for _, refused := range []struct {
		environ []string
		args    []string
		want    string
	}{
		{acme, []string{"--filter", "dco.total"}, "filter: line 1, column 1: "},
		{acme, []string{"--order-by", "total dsc"}, "orderBy: line 1, column 7: "},
		{acme, []string{"--fields", "a,"}, "fields: line 1, column 3: "},
		{acme, []string{"--count", "--fields", "a,"}, "fields: line 1, column 3: "},
		{acme, []string{"--page-size", "1001"}, "pageSize"},
		{acme, []string{"--all", "--count"}, "--all and --count cannot be combined"},
		{acme, []string{"--explain"}, "tenant"},
		{acme, []string{"--explain", "--tenant", "acme"}, "forbidden"},
		{operator, []string{"--explain", "--tenant", "nobody"}, `there is no tenant "nobody"`},
		{operator, nil, "forbidden"},
	} {
		args := append([]string{"projection", "documents", "orders"}, refused.args...)
		if o := run(t, refused.environ, nil, args...); o.code == 0 || !strings.Contains(o.err, refused.want) {
			t.Errorf("%v: %+v; it should say %s", args, o, refused.want)
		}
	}
}
