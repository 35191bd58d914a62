package filter

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// What a filter cannot ask is refused with its place, what is wrong, and what to write instead.
func TestWhatFiltersRefuse(t *testing.T) {
	t.Parallel()
	many := func(n int, part, joint string) string {
		return strings.TrimSuffix(strings.Repeat(part+joint, n), joint)
	}
	for _, c := range []struct {
		source       string
		line, column int    // column 0: not worth counting
		message      string // part of it
		hint         string // part of it
	}{
		// What is no expression, or no condition.
		{"", 1, 1, "empty", "doc.total > 0"},
		{"doc.a = 3", 1, 7, "single =", "write =="},
		{"event.stream == 'a'", 1, 1, `no variable "event"`, "there is only doc"},
		{`status == "open"`, 1, 1, `no variable "status"`, "doc.status"},
		{"doc.status == open", 1, 15, `no variable "open"`, `a string "open"`},
		{"dok.status == 'open'", 1, 1, `no variable "dok"`, "there is only doc"},
		{"doc.a and doc.b", 1, 7, `"and"`, "&&"},
		{"doc.a == 1 AND doc.b == 2", 1, 12, `"AND"`, "&&"},
		{"not doc.a", 1, 5, `"doc" cannot stand here after not`, "write !"},
		{"doc.a LIKE 'x%'", 1, 7, `"LIKE"`, "startsWith"},
		{"doc.a between 1 and 2", 1, 7, `"between"`, "x >= a && x <= b"},
		{"doc.a <> 1", 1, 8, `">"`, "write !="},
		{"doc.a in (1, 2)", 1, 12, `","`, "[a, b]"},
		{"doc.true", 1, 5, `"true"`, "doc['true']"},
		{"doc.at < now()", 1, 10, `no function "now"`, "doc.at >="},
		{"3", 1, 1, "a filter gives true or false, and this is an int", "compare it"},
		{"'open'", 1, 1, "a filter gives true or false, and this is a string", "compare it"},
		{"has(doc.a) ? 3 : 4", 1, 14, "a filter gives true or false, and this is an int", "compare it"},
		{"doc", 1, 1, "document as a whole", "doc.status"},
		{"!doc", 1, 1, "! does not take an object", "compare it"},
		{"doc == {}", 1, 1, "document as a whole", "doc.status"},
		{"{} != doc", 1, 7, "document as a whole", "doc.status"},
		// Lists.
		{`doc.tags.exists(x, x == "vip")`, 1, 10, "walk over a list", `"vip" in doc.tags`},
		{`doc.lines.all(l, l.qty > 1)`, 1, 11, "walk over a list", `"vip" in doc.tags`},
		{`doc.tags.exists_one(x, x == "vip")`, 1, 10, "walk over a list", `"vip" in doc.tags`},
		{`doc.lines.exists(i, l, l.qty > i)`, 1, 11, "walk over a list", `"vip" in doc.tags`},
		{`doc.lines.filter(l, l.qty > 1) == []`, 1, 11, "walk over a list", "separate field"},
		{`3 in doc.lines.map(l, l.qty)`, 1, 16, "walk over a list", "separate field"},
		{`doc.lines.transformList(i, l, i) == []`, 1, 11, "walk over a list", "separate field"},
		{`doc.lines.sortBy(l, l.qty) == []`, 1, 11, "walk over a list", "separate field"},
		{`[1, 2].exists(x, x == doc.a)`, 1, 8, "walk over a list", `"vip" in doc.tags`},
		{`doc.tags.size() > 1`, 1, 10, "cannot count", "separate field"},
		{`size(doc.tags) > 1`, 1, 1, "cannot count", "separate field"},
		{`doc.tags[0] == "a"`, 1, 9, "place of a list", `"vip" in doc.tags`},
		{`doc.tags[?0].orValue("") == "a"`, 1, 9, "place of a list", `"vip" in doc.tags`},
		{`doc.tags.first().value() == "a"`, 1, 10, "place of a list", `"vip" in doc.tags`},
		{`doc.tags == ["a"]`, 1, 13, "single values, not a list", `"vip" in doc.tags`},
		{`doc.a in [[1], [2]]`, 1, 10, "single values, not a list", `"vip" in doc.tags`},
		{`[1] in doc.tags`, 1, 1, "single values, not a list", `"vip" in doc.tags`},
		{`doc.customer == {"name": "a"}`, 1, 17, "single values, not an object", "doc.customer.name"},
		{`[doc.a, 2] == [1, 2]`, 1, 1, "made of constants", "joined by &&"},
		{`doc.a in [doc.b, 1]`, 1, 10, "made of constants", "joined by &&"},
		{`{"a": doc.a} == {"a": 1}`, 1, 1, "made of constants", "joined by &&"},
		{`doc.a in "abc"`, 1, 7, "in does not take", "in [a, b]"},
		{`doc.a in dyn("abc")`, 1, 7, "not into a string", "contains(part)"},
		// Fields with fields, and calculations.
		{"doc.paid < doc.total", 1, 10, "not with another field", "separate field"},
		{"doc.a in doc.b", 1, 7, "not with another field", "separate field"},
		{"doc.a in doc", 1, 7, "not with another field", "separate field"},
		{"doc.a.startsWith(doc.b)", 1, 7, "not with another field", "separate field"},
		{"doc.?a.orValue(doc.b) == doc.c", 1, 23, "not with another field", "separate field"},
		{"doc.?a.hasValue(doc.b)", 1, 21, "not with another field", "separate field"},
		{"doc.total * 1.19 > 100", 1, 11, "calculate with a field", "other side"},
		{"1 + doc.total > 100", 1, 3, "calculate with a field", "other side"},
		{"-doc.total > 100", 1, 1, "calculate with a field", "other side"},
		{"doc.?a.optMap(x, x + 1).orValue(2) == 1", 1, 8, "calculate with a field", "separate field"},
		{"cel.bind(x, doc.a, x > 1)", 1, 5, "name a part of itself", "each time"},
		{"math.abs(doc.a) > 1", 1, 6, "cannot call math.abs", "separate field"},
		{"doc.prices[doc.currency] > 1", 1, 16, "must be known", `doc.prices["EUR"]`},
		{"(doc.a > 1) == true", 1, 8, "condition cannot be compared", "the condition itself"},
		{"has(doc.a) == has(doc.b)", 1, 5, "condition cannot be compared", "the condition itself"},
		{"doc.?a == 3", 1, 4, "optional value", "orValue"},
		{"doc.?a.b == 3", 1, 8, "optional value", "orValue"},
		{"doc.?a", 1, 4, "optional value", "orValue"},
		{"optional.of(3) == doc.a", 1, 10, "optional value", "orValue"},
		{"doc.a.orValue(3) == 3", 1, 5, "may be missing", "doc.?field"},
		{"doc['a'].hasValue()", 1, 4, "may be missing", "doc.?field"},
		{"doc.a.value() == 3", 1, 5, "may be missing", "doc.?field"},
		{"doc.?b.or(doc.a).orValue(3) == 3", 1, 15, "may be missing", "doc.?field"},
		// Kinds.
		{`timestamp(doc.at) > timestamp("2026-01-01T00:00:00Z")`, 1, 1, "read a time", `doc.at >= "2026`},
		{`doc.at > timestamp("2026-01-01T00:00:00Z")`, 1, 10, "no document has a timestamp", `doc.at >= "2026`},
		{`doc.at == duration("1h")`, 1, 11, "no document has a duration", `doc.at >= "2026`},
		{`doc.at in [timestamp("2026-01-01T00:00:00Z")]`, 1, 11, "no document has a timestamp", `doc.at >= "2026`},
		{"int(doc.a) == 3", 1, 1, "convert a field", "leave int() out"},
		{"type(doc.a) == string", 1, 1, "convert a field", "leave type() out"},
		{"doc.a == string", 1, 10, "compare with a type", ""},
		{"doc.a.lowerAscii() == 'x'", 1, 7, "cannot change a string", "separate field"},
		{"doc.a.substring(1) == 'x'", 1, 7, "cannot call substring", "separate field"},
		{"doc.a < null", 1, 9, "before or after null", "doc.field == null"},
		{"'abc'.startsWith(doc.a)", 1, 7, "looks into a field", "doc.field.startsWith"},
		{"doc.a.contains(dyn(3))", 1, 16, "takes a string, not an int", ""},
		{"doc.?a.orValue('x') < 3", 1, 21, "< cannot compare a string with an int", ""},
		{"doc.a == 1 / 0", 1, 12, "division by zero", ""},
		{"true || doc.a == [1][2]", 1, 21, "none at place 2", ""},
		{`doc.a == "\u0000"`, 1, 10, "U+0000", ""},
		{`doc["\u0000"] == 1`, 1, 4, "U+0000", ""},
		{`"a\u0000" in doc`, 1, 1, "U+0000", ""},
		{`doc.a.contains("\u0000")`, 1, 16, "U+0000", ""},
		// Patterns.
		{`doc.a.matches("(")`, 1, 15, "not a regular expression", ""},
		{`doc.a.matches(r"\bx")`, 1, 15, `\b and \B do not mean the same`, ""},
		{`doc.a.matches("(?m)^x")`, 1, 15, "ends of lines", ""},
		{`doc.a.matches("x{256}")`, 1, 15, "at most 255", ""},
		{`doc.a.matches(doc.b)`, 1, 7, "not with another field", ""},
		// Bounds.
		{many(MaxLeaves+1, "doc.a == 1", " || "), 1, 0, "more than 200", "in [a, b, c]"},
		{"doc.a in lists.range(1001)", 1, 16, "1001 constants", "several times"},
		{"doc.a in [" + many(1001, "1", ",") + "]", 1, 10, "1001 constants", "several times"},
		{"doc.a in lists.range(100).map(x, '" + strings.Repeat("x", 200) + "')", 1, 0, "16384 bytes together", ""},
		{"lists.range(1000).all(x, lists.range(1000).all(y, y < 1001)) && doc.a", 1, 0, "more than 1000000 steps", ""},
		{"doc.a\n  && doc.tags.all(x, true)", 2, 15, "walk over a list", ""},
		{"'ä' == 'ö' || doc.tags.all(x, true)", 1, 24, "walk over a list", ""},
	} {
		_, err := Compile(c.source)
		failure, ok := errors.AsType[*expr.CompileError](err)
		short := c.source[:min(len(c.source), 80)]
		if !ok {
			t.Errorf("%s\n  %v; want a compile error", short, err)
			continue
		}
		if failure.Line != c.line || failure.Column != c.column && c.column != 0 || !strings.Contains(failure.Message, c.message) || !strings.Contains(failure.Hint, c.hint) {
			t.Errorf("%s\n  line %d, column %d: %s; %s\n  want line %d, column %d: ...%s...; ...%s...", short, failure.Line, failure.Column, failure.Message, failure.Hint, c.line, c.column, c.message, c.hint)
		}
	}
}

func TestFiltersWithinTheirBounds(t *testing.T) {
	t.Parallel()
	for _, source := range []string{
		strings.TrimSuffix(strings.Repeat("doc.a == 1 || ", MaxLeaves), " || "),
		"doc.a in lists.range(1000)",
		strings.Repeat("!", 50) + "doc.a",
	} {
		predicate, err := Compile(source)
		if err == nil {
			err = wellFormed(predicate)
		}
		if err != nil {
			t.Errorf("%.80s: %v", source, err)
		}
	}
	// Each conditional doubles what its condition comes to; that is found before it is made.
	nested := "doc.a"
	for range 30 {
		nested = "(" + nested + " ? doc.b : doc.c)"
	}
	if _, err := Compile(nested); err == nil || !strings.Contains(err.Error(), "more than 200 comparisons") {
		t.Errorf("nested conditionals: %v", err)
	}
	if _, err := Compile("1 < " + nested); err == nil || !strings.Contains(err.Error(), "more than 200 comparisons") {
		t.Errorf("nested conditional values: %v", err)
	}
}

// Constants are calculated once, and a filter of constants matches all documents or none.
func TestConstantFilters(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]domain.Predicate{
		"true":                            domain.And{},
		"1 > 2":                           domain.Or{},
		"true || doc.a == 1":              domain.And{},
		"doc.a == 1 && false":             domain.Or{},
		"doc.a in []":                     domain.Or{},
		"3 in doc":                        domain.Or{},
		"!(doc.a in [])":                  domain.Has{Path: domain.Path{"a"}, Place: "line 1, column 9"},
		`"a" in doc`:                      domain.Has{Path: domain.Path{"a"}, Place: "line 1, column 5"},
		"60 * 60 < doc.a":                 domain.Compare{Path: domain.Path{"a"}, Comparison: domain.Greater, Value: domain.Scalar{Kind: domain.ScalarInt, Int: 3600}, Place: "line 1, column 9"},
		"(true ? doc.a : doc.b) == 6 / 2": domain.Compare{Path: domain.Path{"a"}, Comparison: domain.Equal, Value: domain.Scalar{Kind: domain.ScalarInt, Int: 3}, Place: "line 1, column 24"},
		`doc.a.startsWith("a" + "b")`:     domain.Text{Path: domain.Path{"a"}, Test: domain.StartsWith, Text: "ab", Place: "line 1, column 7"},
		`doc.a in ["a", "b"].map(x, x + "1")`: domain.OneOf{Path: domain.Path{"a"}, Place: "line 1, column 7",
			Values: []domain.Scalar{{Kind: domain.ScalarText, Text: "a1"}, {Kind: domain.ScalarText, Text: "b1"}}},
	} {
		if predicate, err := Compile(source); err != nil || !reflect.DeepEqual(predicate, want) {
			t.Errorf("%s\n  gives %#v, %v\n  want  %#v", source, predicate, err, want)
		}
	}
}

// BenchmarkCompile measures what a filter costs beside the database's work.
func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(`doc.status == "open" && doc.total > 100 && "vip" in doc.tags`); err != nil {
			b.Fatal(err)
		}
	}
}
