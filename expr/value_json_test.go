package expr

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// jsonValues draws values of JSON's kinds.
func jsonValues(depth int) *rapid.Generator[Value] {
	scalars := []*rapid.Generator[Value]{
		rapid.Just[Value](Null{}),
		rapid.Map(rapid.Bool(), func(b bool) Value { return Bool(b) }),
		numberValues(),
		rapid.Map(rapid.String(), func(s string) Value { return String(s) }),
		rapid.Map(rapid.StringMatching(`[a-z"\\\n\t é€😀\x01]{0,8}`), func(s string) Value { return String(s) }),
	}
	if depth == 0 {
		return rapid.OneOf(scalars...)
	}
	inner := jsonValues(depth - 1)
	return rapid.OneOf(append(scalars,
		rapid.Map(rapid.SliceOfN(inner, 0, 5), func(items []Value) Value { return NewList(items...) }),
		rapid.Map(rapid.MapOfN(rapid.StringMatching(`[a-f"é]{0,2}`), inner, 0, 20), func(m map[string]Value) Value { return NewObject(m) }),
	)...)
}

func TestJSONRoundTripIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := jsonValues(3).Draw(t, "v")
		text, err := AppendJSON(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(text) {
			t.Fatalf("%q is not JSON", text)
		}
		back, err := ParseJSON(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !identical(v, back) {
			t.Fatalf("%s reads back as %v, not as %v", text, back, v)
		}
		again, err := AppendJSON(nil, back)
		if err != nil || !bytes.Equal(text, again) {
			t.Fatalf("%s is written as %s the second time, %v", text, again, err)
		}
		if m := measureOf(v); m.bytes < len(text) || m.foreign {
			t.Fatalf("%s has %d bytes, but is measured as %+v", text, len(text), m)
		}
	})
}

// identical reports whether two values are the same in every respect, what is known of their insides included.
func identical(a, b Value) bool {
	if x, ok := a.(List); ok {
		y, ok := b.(List)
		if !ok || len(x.items) != len(y.items) || x.inside != y.inside {
			return false
		}
		for i := range x.items {
			if !identical(x.items[i], y.items[i]) {
				return false
			}
		}
		return true
	}
	if x, ok := a.(*Object); ok {
		y, ok := b.(*Object)
		if !ok || x.Len() != y.Len() || x.inside != y.inside {
			return false
		}
		for i := range x.keys {
			if x.keys[i] != y.keys[i] || !identical(x.values[i], y.values[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

func TestReadingAgreesWithEncodingJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`(\{"[a-c\\nu"]{0,3}":|\[|\]|\}|,|"a"|-?[0-9]{1,3}(\.[0-9]+)?([eE][+-]?[0-9])?|true|null| |"\\u00e9"|\\ud83d){0,9}`).Draw(t, "text")
		checkAgainstEncodingJSON(t, []byte(text))
	})
}

// checkAgainstEncodingJSON holds what is accepted, and what strings and structure mean, against the standard library.
// Numbers are left out: it keeps them as doubles.
func checkAgainstEncodingJSON(t interface{ Fatalf(string, ...any) }, text []byte) {
	v, err := ParseJSON(text)
	if valid := json.Valid(text); valid != (err == nil) {
		if valid && strings.Contains(err.Error(), "nested deeper") {
			return
		}
		t.Fatalf("%q: valid %v, but %v", text, valid, err)
	}
	if err != nil {
		return
	}
	out, err := AppendJSON(nil, v)
	if err != nil {
		t.Fatalf("%q cannot be written: %v", text, err)
	}
	decode := func(text []byte) (v any) {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		if err := decoder.Decode(&v); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return withoutNumbers(v)
	}
	if want, got := decode(text), decode(out); !reflect.DeepEqual(want, got) {
		t.Fatalf("%q is read as %q", text, out)
	}
}

func withoutNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		return "a number"
	case []any:
		for i := range v {
			v[i] = withoutNumbers(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = withoutNumbers(v[key])
		}
	}
	return v
}

func TestParseJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{`{"b": 1, "a": 2, "b": 3}`, `{"a":2,"b":3}`},
		{` [ 1 , {"x":[ ]} ] `, `[1,{"x":[]}]`},
		{`"\u0041\n\"\\\/\ud83d\ude00"`, `"A\n\"\\/😀"`},
		{`"\ud83d"`, `"�"`},
		{`"\ud83dx"`, `"�x"`},
		{"\"\xff\"", `"�"`},
		{`{"é":"ü"}`, `{"é":"ü"}`},
		{`"\u0000\u001f"`, `"\u0000\u001f"`},
	} {
		v, err := ParseJSON([]byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if out, err := AppendJSON(nil, v); err != nil || string(out) != c.want {
			t.Errorf("%s is read as %s, %v; want %s", c.text, out, err, c.want)
		}
	}
	for _, text := range []string{"", " ", "{", "[1,]", `{"a":1,}`, "01", "+1", "1.", ".5", "1e", "nul", "truex", `"a`, "\"\x01\"", `"\x"`, `"\u12g4"`, `{"a" 1}`, `{a:1}`, "1 2", "[1 2]", "-", "NaN"} {
		if v, err := ParseJSON([]byte(text)); err == nil {
			t.Errorf("%q is read as %v", text, v)
		}
	}
	if _, err := ParseDocument([]byte("[]")); err == nil {
		t.Error("a list was taken for a document")
	}
}

func TestNestingIsBounded(t *testing.T) {
	t.Parallel()
	nested := func(depth int) []byte {
		return []byte(strings.Repeat("[", depth) + strings.Repeat("]", depth))
	}
	v, err := ParseJSON(nested(MaxDepth))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := AppendJSON(nil, v); err != nil {
		t.Errorf("what was read cannot be written: %v", err)
	}
	if _, err := ParseJSON(nested(1_000_000)); err == nil {
		t.Error("a million lists inside one another were read")
	}
	for range MaxDepth {
		v = NewList(v)
	}
	if _, err := AppendJSON(nil, v); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a value nested twice too deep: %v", err)
	}
}

func TestDocumentsBeyondTheLimitAreRefused(t *testing.T) {
	t.Parallel()
	big := String(strings.Repeat("x", 1<<20))
	items := make([]Value, 17)
	for i := range items {
		items[i] = big
	}
	if _, err := AppendJSON(nil, NewList(items...)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("17 MiB: %v", err)
	}
	dst := []byte("kept")
	if out, err := AppendJSON(dst, NewList(items...)); err == nil || string(out) != "kept" {
		t.Errorf("after an error the destination is %.20q, %v", out, err)
	}
}
