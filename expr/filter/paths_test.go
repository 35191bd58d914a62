package filter

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

func TestOrdersAndFields(t *testing.T) {
	t.Parallel()
	orders, err := CompileOrder("total desc,\n customer.name , [\"odd name\"][ 'ä\\'\\n' ].x asc")
	want := []domain.Order{{Path: domain.Path{"total"}, Descending: true}, {Path: domain.Path{"customer", "name"}}, {Path: domain.Path{"odd name", "ä'\n", "x"}}}
	if err != nil || !reflect.DeepEqual(orders, want) {
		t.Errorf("the order is %v, %v; want %v", orders, err, want)
	}
	// Words of the language, and of this list, are names here.
	orders, err = CompileOrder("asc desc, desc, in.true asc")
	want = []domain.Order{{Path: domain.Path{"asc"}, Descending: true}, {Path: domain.Path{"desc"}}, {Path: domain.Path{"in", "true"}}}
	if err != nil || !reflect.DeepEqual(orders, want) {
		t.Errorf("the order is %v, %v; want %v", orders, err, want)
	}
	fields, err := CompileFields("status, customer.name, status, doc, [\"doc\"].total")
	if want := []domain.Path{{"status"}, {"customer", "name"}, {"status"}, {"doc"}, {"doc", "total"}}; err != nil || !reflect.DeepEqual(fields, want) {
		t.Errorf("the fields are %v, %v; want %v", fields, err, want)
	}
}

func TestWhatListsOfPathsRefuse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		source       string
		line, column int
		message      string // part of it
		hint         string // part of it
	}{
		{"", 1, 1, "expected a path", ""},
		{"a,", 1, 3, "expected a path", ""},
		{"a,,b", 1, 3, "expected a path", ""},
		{"a,b,c,d", 1, 7, "at most 3 paths", "document's id"},
		{"a, b desc, a desc", 1, 12, "the path a is listed twice", ""},
		{`a.b, a["b"]`, 1, 6, `the path a["b"] is listed twice`, ""},
		{"doc.a", 1, 1, "without doc", `["doc"]`},
		{`a, doc["b"]`, 1, 4, "without doc", `["doc"]`},
		{"items[0]", 1, 7, "a name in quotes", "lists"},
		{"items[x]", 1, 7, "a name in quotes", `["odd name"]`},
		{"a b", 1, 3, `"b" cannot stand here`, "a comma"},
		{"a asc desc", 1, 7, `"desc" cannot stand here`, "once after each path"},
		{"a DESC", 1, 3, `"DESC"`, "write desc"},
		{"-a", 1, 1, "expected a path", "total desc"},
		{"line-items", 1, 5, `"-" cannot stand here`, `["odd-name"]`},
		{"a; b", 1, 2, `";" cannot stand here`, "commas"},
		{"size(a)", 1, 5, `"(" cannot stand here`, "no functions"},
		{"größe", 1, 3, `"öße" cannot stand here`, `["odd-name"]`},
		{"a.", 1, 3, "expected a path", ""},
		{"a.1", 1, 3, "expected a path", ""},
		{"a\n, b.\n c", 2, 5, "expected a path", ""},
		{`["x`, 1, 2, "does not end", `write "`},
		{`["x\`, 1, 2, "does not end", `write "`},
		{`["\q"]`, 1, 2, "escape sequence", ""},
		{"['a\nb']", 1, 2, "", ""},
		{`["\u0000"]`, 1, 2, "U+0000", ""},
		{`["x"`, 1, 5, "a ] is missing", ""},
		{`["x" "y"]`, 1, 6, "a ] is missing", ""},
		{"'a'", 1, 1, "expected a path", `["odd-name"]`},
		{"a" + strings.Repeat(".a", expr.MaxNesting), 1, 128, "at most 64 names", ""},
		{strings.Repeat(" ", expr.MaxSourceBytes+1), 1, 1, "16384 are allowed", ""},
		{"a\xff", 1, 1, "UTF-8", ""},
	} {
		_, err := CompileOrder(c.source)
		failure, ok := errors.AsType[*expr.CompileError](err)
		if !ok {
			t.Errorf("%.80s\n  %v; want a compile error", c.source, err)
			continue
		}
		if failure.Line != c.line || failure.Column != c.column || !strings.Contains(failure.Message, c.message) || !strings.Contains(failure.Hint, c.hint) {
			t.Errorf("%.80s\n  line %d, column %d: %s; %s\n  want line %d, column %d: ...%s...; ...%s...", c.source, failure.Line, failure.Column, failure.Message, failure.Hint, c.line, c.column, c.message, c.hint)
		}
	}
	if _, err := CompileFields("a desc"); err == nil || !strings.Contains(err.Error(), `line 1, column 3: "desc" cannot stand here`) {
		t.Errorf("fields with a direction: %v", err)
	}
	if _, err := CompileFields(strings.Repeat("a,", MaxFields) + "a"); err == nil || !strings.Contains(err.Error(), "more than 100 paths") {
		t.Errorf("101 fields: %v", err)
	}
	if fields, err := CompileFields(strings.Repeat("a,", MaxFields-1) + "a"); err != nil || len(fields) != MaxFields {
		t.Errorf("100 fields: %v", err)
	}
}

// A path as it is written in messages reads back as the same path, in a list and in a filter.
func TestPathsReadBackAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.SampledFrom([]string{"a", "in", "true", "null", "if", "for", "package", "_x1", "odd name", "", "1", `"`, `\`, "\u2028", "<&>", "\x7f", "\U0001F600"}), rapid.StringMatching(`[a-z]{1,5}`),
			rapid.String().Filter(func(s string) bool { return !strings.Contains(s, "\x00") }))
		path := domain.Path(rapid.SliceOfN(name, 1, 4).Draw(t, "path"))
		source := strings.TrimPrefix(strings.TrimPrefix(path.String(), "doc"), ".")
		if !strings.HasPrefix(source, "doc.") && !strings.HasPrefix(source, "doc[") {
			fields, err := CompileFields(source)
			if err != nil || len(fields) != 1 || !reflect.DeepEqual(fields[0], path) {
				t.Fatalf("%s reads as %q, %v; want %q", source, fields, err, path)
			}
		}
		predicate, err := Compile(path.String() + " == 1")
		if compare, ok := predicate.(domain.Compare); err != nil || !ok || !reflect.DeepEqual(compare.Path, path) {
			t.Fatalf("%s == 1 reads as %v, %v; want %q", path, predicate, err, path)
		}
	})
}
