package remote

import (
	"encoding/json"
	"reflect"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

func TestYAMLIsReadable(t *testing.T) {
	t.Parallel()
	got, err := appendYAML(nil, []byte(`{"id":"a","list":[{"x":1,"y":[]},[1,[2]]],"none":{},"on":true}`))
	want := "id: \"a\"\nlist:\n  - x: 1\n    \"y\": []\n  - - 1\n    - - 2\nnone: {}\n\"on\": true\n"
	if err != nil || string(got) != want {
		t.Errorf("it writes, with %v,\n%s\nwant\n%s", err, got, want)
	}
}

// What a parser of YAML reads is the value.
func TestYAMLIsTheValue(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{".inf", "1e3", "12e03", "x\r\ny", "? x", "<<", "\x00\x1b", "1:30", "~", "- a", "a: b", "#", "", " ", "no", "\u2028", "\u0085", "\ufeff"}))
	var value *rapid.Generator[any]
	value = rapid.Deferred(func() *rapid.Generator[any] {
		return rapid.OneOf(
			rapid.Map(text, func(s string) any { return s }),
			rapid.Map(rapid.Float64Range(-1e15, 1e15), func(f float64) any { return f }),
			rapid.Map(rapid.Bool(), func(b bool) any { return b }),
			rapid.Just[any](nil),
			rapid.Map(rapid.SliceOfN(value, 0, 3), func(list []any) any { return list }),
			rapid.Map(rapid.MapOfN(text, value, 0, 3), func(object map[string]any) any { return object }),
		)
	})
	rapid.Check(t, func(t *rapid.T) {
		given, err := json.Marshal(value.Draw(t, "value"))
		if err != nil {
			t.Fatal(err)
		}
		written, err := appendYAML(nil, given)
		if err != nil {
			t.Fatal(err)
		}
		var read any
		if err := yaml.Unmarshal(written, &read); err != nil {
			t.Fatalf("%v in\n%s", err, written)
		}
		var want, got any
		again, err := json.Marshal(read)
		if err != nil {
			t.Fatalf("%v in\n%s", err, written)
		}
		if json.Unmarshal(given, &want) != nil || json.Unmarshal(again, &got) != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s is read as %s from\n%s", given, again, written)
		}
	})
}
