package expr

import (
	"errors"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/expr/exprtest"
)

// seeds are texts from which the fuzzer makes others.
func seeds(f *testing.F, add func(source string)) {
	add(itemAdded)
	for _, source := range exprtest.Expressions {
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
		first, err := fold.Eval(doc, NewEvent(&event))
		checkInternal(t, source, err)
		second, errSecond := fold.Eval(doc, NewEvent(&event))
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
