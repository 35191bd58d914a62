package expr

import (
	"errors"
	"strings"
	"testing"
)

// seeds are texts from which the fuzzer makes others.
func seeds(f *testing.F, add func(source string)) {
	for _, source := range []string{
		itemAdded, `doc.?a.?b.orValue(0)`, `doc.lines.map(l, l.qty).sum()`, `doc.lines.sortBy(l, -l.qty)`, `doc.tags.transformMap(k, v, v + 1)`, `cel.bind(a, doc.total, a * a)`,
		`'%s %d %.2f'.format([doc.name, 3, 2.5])`, `'abc'.substring(1, 2).matches('b+')`, `event.occurredAt.getHours('+01:00')`, `timestamp('2026-01-31T12:00:00Z') - event.recordedAt`,
		`{?'a': doc.?x, event.type: [?doc.?y, 1]}`, `doc.items.exists(x, x > 2) && !has(doc.nope) || doc.total % 2 == 0`, `math.greatest(1, 2.5, doc.total)`, `without(doc, ['a', 'b'])`,
		`doc.items.slice(0, 2) + [[1], [2]].flatten()`, `type(doc.total) == int ? 1 : 'a'`, `doc["a"][0][?"b"]`, `-9223372036854775808 / -1`, `5u + b'a'`, `.doc.a`, `Foo{a: 1}`, `optional.of(1).or(optional.none())`,
		`lists.range(3).transformMapEntry(i, x, {string(i): x})`, "1 //\n + \"\\u00e4\"", `"""a\n"""`, "r'\\'", `doc.__result__`, `[1].map(__result__, 1)`, `x.y.z()`, `doc.map(`, `1e400`, `0xfffffffffffffffff`,
	} {
		add(source)
	}
}

// checkInternal fails on what should never come out: an error of this package's own making.
func checkInternal(t *testing.T, source string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if fault, ok := errors.AsType[*EvalError](err); ok {
		if fault.Kind == KindInternal {
			t.Fatalf("%q: %v", source, err)
		}
		return
	}
	failure, ok := errors.AsType[*CompileError](err)
	if !ok || strings.Contains(failure.Message, "cannot be compiled") || failure.Line < 1 || failure.Column < 1 || failure.Message == "" {
		t.Fatalf("%q: %v", source, err)
	}
	_ = failure.Snippet()
}

// FuzzCompile compiles any text in every scope.
func FuzzCompile(f *testing.F) {
	seeds(f, func(source string) { f.Add(source) })
	for _, source := range attacks() {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		for _, scope := range []Scope{ScopeProjection, ScopeAggregate, ScopeEvent} {
			_, err := Compile(scope, source)
			checkInternal(t, source, err)
		}
	})
}

// FuzzEval evaluates any expression on any document and event, twice: the results must be the same, and what a fold
// gives must be fit for storing.
func FuzzEval(f *testing.F) {
	seeds(f, func(source string) {
		f.Add(source, []byte(orderDocument), []byte(`{"qty": 3, "sku": "SKU-1", "price": 12.35, "text": "abc"}`))
	})
	f.Fuzz(func(t *testing.T, source string, document, data []byte) {
		doc, err := ParseDocument(document)
		if err != nil {
			return
		}
		fold, err := CompileFold(ScopeProjection, source)
		checkInternal(t, source, err)
		if err != nil {
			return
		}
		_, event := sample()
		event.Data = data
		first, err := fold.Eval(doc, NewEvent(event))
		checkInternal(t, source, err)
		second, errSecond := fold.Eval(doc, NewEvent(event))
		if (err == nil) != (errSecond == nil) || err != nil && err.Error() != errSecond.Error() {
			t.Fatalf("%q gives %v, then %v", source, err, errSecond)
		}
		if err != nil || first == nil {
			return
		}
		if !identical(first, second) {
			t.Fatalf("%q gives %v, then %v", source, first, second)
		}
		text, err := AppendJSON(nil, first)
		if err != nil {
			t.Fatalf("%q gives what cannot be stored: %v", source, err)
		}
		back, err := ParseDocument(text)
		if err != nil || !identical(first, back) {
			t.Fatalf("%q gives %s, which reads back as %v, %v", source, text, back, err)
		}
	})
}

// FuzzJSON holds reading and writing against encoding/json.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{`{"a": [1, 2.5, -0, 1e3, "x\u00e9\ud83d\ude00", true, null], "a": {}}`, `[[[]]]`, `"\ud83d"`, `9007199254740993.0`, `{"":""}`, "\"\xff\"", `1e400`, ` [1 , 2 ] `, `-`, `"\u0000"`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		checkAgainstEncodingJSON(t, text)
		v, err := ParseJSON(text)
		if err != nil {
			return
		}
		out, err := AppendJSON(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseJSON(out)
		if err != nil || !identical(v, back) {
			t.Fatalf("%q is written as %q and read back as %v, %v", text, out, back, err)
		}
	})
}
