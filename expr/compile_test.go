package expr

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

func TestCompileErrorsNamePlaceAndFix(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		source       string
		line, column int
		message      string // part of it
		hint         string // part of it
	}{
		{"doc.total = 1", 1, 11, "single =", "merge(doc"},
		{"doc.a === 1", 1, 9, "===", "write =="},
		{"doc.a !== 1", 1, 9, "!==", "write !="},
		{"doc += 1", 1, 6, "+=", "merge(doc"},
		{"doc.a & doc.b", 1, 7, "single &", "&&"},
		{"doc.a | doc.b", 1, 7, "single |", "||"},
		{"doc.a and doc.b", 1, 7, `"and"`, "&&"},
		{"not doc.a", 1, 5, `"doc"`, "write !"},
		{"if (doc.a) 1 else 2", 1, 1, "reserved identifier: if", "condition ? a : b"},
		{"let x = 1", 1, 1, "reserved identifier: let", "cel.bind"},
		{"doc.a ?? 1", 1, 8, "", "orValue"},
		{"doc?.a", 1, 7, "ends too early", ".?field"},
		{"doc.a ? 1", 1, 10, "ends too early", "condition ? a : b"},
		{"doc.total;", 1, 10, ";", "leave it out"},
		{`"abc`, 1, 1, "does not end", `write " after it`},
		{`'\q'`, 1, 1, "escape sequence", `\\`},
		{"“a”", 1, 1, "quotes", `"..."`},
		{"# x", 1, 1, "#", "//"},
		{"(1 + 2", 1, 7, "ends too early", "a ) is missing"},
		{"doc.items[1", 1, 12, "ends too early", "a ] is missing"},
		{"{'a': 1", 1, 8, "ends too early", "a } is missing"},
		{"merge(doc, {'a': 1},)", 1, 21, `")"`, "comma"},
		{"doc.items.map(x => x)", 1, 17, "=>", "list.map(x"},
		{"merge(doc, {total: 1})", 1, 13, `no variable "total"`, `{"total": ...}`},
		{"dok.total", 1, 1, `no variable "dok"`, "there are event, doc, key and item; a field is written doc.dok"},
		{"state.total", 1, 1, `no variable "state"`, "write doc"},
		{"True", 1, 1, `no variable "True"`, "write true"},
		{"zzz", 1, 1, `no variable "zzz"`, "doc.zzz or event.data.zzz"},
		{"event.datta.x", 1, 7, `an event has no field "datta"`, "its fields are category, data, id"},
		{"event.sku", 1, 7, `an event has no field "sku"`, "event.data"},
		{"len(doc.items)", 1, 1, `no function "len"`, "x.size()"},
		{"event.type.startswith('a')", 1, 12, `no function "startswith"`, "string.startsWith(part)"},
		{"now()", 1, 1, `no function "now"`, "event.recordedAt"},
		{"math.max(1, 2)", 1, 1, "no such function in math", "math.greatest"},
		{"math.flor(1)", 1, 1, "no such function in math", "math.abs, math.bitAnd"},
		{"doc.items.map(x)", 1, 11, "map is not called like this", "list.map(x, value)"},
		{"sum(doc.items)", 1, 1, "sum does not take", "list.sum()"},
		{"merge(doc)", 1, 1, "merge does not take an object", "merge(object, object"},
		{"merge(doc, 1)", 1, 1, "merge does not take an object, an int", "merge(object, object"},
		{"size()", 1, 1, "size needs something", "size(x)"},
		{"'a' * 2", 1, 5, "* does not take a string and an int", "double(x)"},
		{"'a' + 2", 1, 5, "+ does not take a string and an int", "string(x)"},
		{"doc + doc", 1, 5, "+ does not take an object and an object", "merge(a, b)"},
		{"event.recordedAt > '2020'", 1, 18, "> does not take a timestamp and a string", "timestamp('2026"},
		{"1 && true", 1, 1, "expected a bool, not an int", "compare it"},
		{"!1", 1, 1, "! does not take an int", "compare it"},
		{"{'a': 1}[2]", 1, 9, "[] does not take", "counted"},
		{"has(doc)", 1, 5, "invalid argument to has()", "has(doc.field)"},
		{"doc.items.filter(1, 2)", 1, 18, "argument is not an identifier", "list.filter(x, condition)"},
		{"5u", 1, 1, "unsigned", "write 5"},
		{"b'a'", 1, 1, "bytes", "without the b"},
		{"{1: 2}", 1, 2, "keys of an object are strings", "string(...)"},
		{"{'a': 1, 'a': 2}", 1, 10, `"a" occurs twice`, ""},
		{"Foo{a: 1}", 1, 4, `no variable "Foo"`, ""},
		{"99999999999999999999", 1, 1, "invalid int literal", "64 bits; with .0"},
		{"'a'.matches('(')", 1, 13, "regular expression", ""},
		{"'a'.matches('((a{100}){100}){10}')", 1, 13, "regular expression", ""},
		{"'a'.matches('(abcde|fghij){400}')", 1, 13, "too large", ""},
		{"doc.total +\n  doc.items.sizes() * 2", 2, 13, `no function "sizes"`, ""},
		{"'ä' + dok", 1, 7, `no variable "dok"`, "doc"},
		{"", 1, 1, "empty", "null to remove"},
		{" // nothing", 1, 12, "ends too early", ""},
		{strings.Repeat("(", 5000), 1, 1, "nested deeper than 64", ""},
		{strings.Repeat("-(", 500) + "1" + strings.Repeat(")", 500), 1, 1, "nested deeper than 64", ""},
		{strings.Repeat("[", 5000), 1, 1, "nested deeper than 64", ""},
		{"1" + strings.Repeat(" + 1", 4000), 1, 1, "nested deeper than 64", "sum()"},
		{strings.Repeat(" ", MaxSourceBytes+1), 1, 1, "16384 are allowed", ""},
		{"'\xff'", 1, 1, "UTF-8", ""},
	} {
		_, err := Compile(ScopeProjection, c.source)
		failure, ok := errors.AsType[*CompileError](err)
		short := c.source[:min(len(c.source), 60)]
		if !ok {
			t.Errorf("%s\n  %v; want a compile error", short, err)
			continue
		}
		if failure.Line != c.line || failure.Column != c.column || !strings.Contains(failure.Message, c.message) || !strings.Contains(failure.Hint, c.hint) {
			t.Errorf("%s\n  line %d, column %d: %s; %s\n  want line %d, column %d: ...%s...; ...%s...", short, failure.Line, failure.Column, failure.Message, failure.Hint, c.line, c.column, c.message, c.hint)
		}
	}
}

// What takes long to check is refused before it is checked; without the limit on parts these took seconds.
func TestCompilingIsBounded(t *testing.T) {
	t.Parallel()
	for _, unit := range []struct{ open, close string }{{"[", "]"}, {"{'a':", "}"}, {"[1].map(x,", ")"}, {"cel.bind(x, 1,", ")"}, {"[1].sortBy(x,", ")"}} {
		one := strings.Repeat(unit.open, 20) + "1" + strings.Repeat(unit.close, 20)
		_, err := Compile(ScopeProjection, "["+strings.Repeat(one+",", 15_000/len(one))+"1]")
		if err == nil || !strings.Contains(err.Error(), "more than 2000 parts") && !strings.Contains(err.Error(), "exceeds limit of 2000") {
			t.Errorf("many times %s: %v", one, err)
		}
	}
}

// However many mistakes a text has, refusing it takes memory, and so time, in proportion to its length. Nothing runs
// beside this test: what they take would count.
func TestRefusingIsBounded(t *testing.T) {
	source := strings.Repeat(`[1].all(x, x == event.data.q) && `, 480) + "true"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := CompileCondition(source)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "exceeds limit of 2000") {
		t.Errorf("it is answered %v", err)
	}
	if taken := (after.TotalAlloc - before.TotalAlloc) >> 20; taken > 100 {
		t.Errorf("refusing %d bytes takes %d MiB", len(source), taken)
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scope   Scope
		source  string
		problem string
	}{
		{ScopeProjection, "doc", ""}, {ScopeProjection, "state", "write doc"},
		{ScopeAggregate, "state", ""}, {ScopeAggregate, "doc", "write state"},
		{ScopeDocument, "doc", ""}, {ScopeDocument, "event.stream", "there is only doc"},
		{ScopeEvent, "event.stream", ""}, {ScopeEvent, "doc", "doc is not available"}, {ScopeEvent, "state", "state is not available"},
		{ScopeEvent, "event.data.a = 3", "to compare, write ==; nothing is assigned here: an expression gives a value"},
	} {
		_, err := Compile(c.scope, c.source)
		switch {
		case c.problem == "" && err != nil:
			t.Errorf("scope %d, %s: %v", c.scope, c.source, err)
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
			t.Errorf("scope %d, %s: %v; want %q", c.scope, c.source, err, c.problem)
		}
	}
}

func TestSnippetShowsThePlace(t *testing.T) {
	t.Parallel()
	_, err := Compile(ScopeProjection, "merge(doc, {\n\t\"tötal\": dok.total})")
	failure, ok := errors.AsType[*CompileError](err)
	if !ok {
		t.Fatal(err)
	}
	if want := " \"tötal\": dok.total})\n          ^"; failure.Snippet() != want {
		t.Errorf("the snippet is\n%s\nwant\n%s", failure.Snippet(), want)
	}
	_, err = Compile(ScopeProjection, strings.Repeat("doc.abc ", 1)+strings.Repeat(" ", 500)+"= 2"+strings.Repeat(" ", 500))
	if failure, ok = errors.AsType[*CompileError](err); !ok || len(failure.Snippet()) > 220 || !strings.Contains(failure.Snippet(), "= 2") {
		t.Errorf("a long line gives the snippet\n%s", failure.Snippet())
	}
}

// Every function is declared, and every declared one can be called: a name without a meaning would only show when it is
// evaluated.
func TestFunctionsAreCompleteAndUnique(t *testing.T) {
	t.Parallel()
	seen := map[functionKey]bool{}
	for _, f := range functions() {
		key := functionKey{f.name, f.member}
		if seen[key] {
			t.Errorf("%s stands twice", f.name)
		}
		seen[key] = true
		if f.apply == nil || f.usage == "" {
			t.Errorf("%s has no meaning or no usage", f.name)
		}
		if (f.gives == nil) != (len(f.takes) == 0) {
			t.Errorf("%s is half declared", f.name)
		}
	}
	language, err := scopes[ScopeProjection]()
	if err != nil {
		t.Fatal(err)
	}
	for name, declaration := range language.env.Functions() {
		for _, overload := range declaration.OverloadDecls() {
			if !strings.ContainsAny(name, "_@") && name != "or" && name != "orValue" && !seen[functionKey{name, overload.IsMemberFunction()}] {
				t.Errorf("%s is declared, but has no meaning", overload.ID())
			}
		}
	}
}
