package domain_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

func TestPick(t *testing.T) {
	t.Parallel()
	const data = ` {"a": {"b": 1.50, "c": [1, {"b": 2}], "d": {"e": null}}, "odd name": "\u00e4", "n": null, "l": [{"a": 1}], "<&>": 9007199254740993, "x": 1, "x": {"y": 2}} `
	for _, c := range []struct {
		want   string
		fields []domain.Path
	}{
		{`{}`, nil},
		{`{}`, []domain.Path{{"missing"}, {"a", "missing"}, {"n", "a"}, {"l", "a"}, {"l", "0"}, {"a", "d", "e", "f"}}},
		{`{"n":null,"a":{"c":[1, {"b": 2}]}}`, []domain.Path{{"n"}, {"a", "c"}}},
		{`{"a":{"b":1.50,"d":{"e":null}}}`, []domain.Path{{"a", "b"}, {"missing"}, {"a", "d", "e"}, {"a", "b"}}},
		{`{"a":{"b": 1.50, "c": [1, {"b": 2}], "d": {"e": null}}}`, []domain.Path{{"a", "b"}, {"a"}}},
		{`{"a":{"b": 1.50, "c": [1, {"b": 2}], "d": {"e": null}}}`, []domain.Path{{"a"}, {"a", "missing"}}},
		{`{"odd name":"\u00e4","<&>":9007199254740993}`, []domain.Path{{"odd name"}, {"<&>"}}},
		{`{"x":{"y": 2}}`, []domain.Path{{"x"}}}, // of two members of one name, the last counts
		{`{"x":{"y":2}}`, []domain.Path{{"x", "y"}}},
	} {
		got, err := domain.Pick(json.RawMessage(data), c.fields)
		if err != nil || string(got) != c.want {
			t.Errorf("%v gives %s, %v; want %s", c.fields, got, err, c.want)
		}
	}
	for _, data := range []string{``, `null`, `[{"a": 1}]`, `"a"`, `{"a": 1`, `{"a": }`} {
		if got, err := domain.Pick(json.RawMessage(data), []domain.Path{{"a"}}); err == nil {
			t.Errorf("%q gives %s", data, got)
		}
	}
	deep := strings.Repeat(`{"a":`, 500) + "1" + strings.Repeat("}", 500)
	if got, err := domain.Pick(json.RawMessage(deep), []domain.Path{{"a", "a"}}); err != nil || string(got) != deep {
		t.Errorf("an object that is nested deep gives %.60s, %v", got, err)
	}
}

// Each requested path leads to the same value as in the whole object, and the result contains only requested values.
func TestPickedPartsAreThoseOfTheWhole(t *testing.T) {
	t.Parallel()
	names := rapid.SampledFrom([]string{"a", "b", "", "0"})
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		if depth == 0 {
			return rapid.SampledFrom([]any{nil, true, "a", 1.5, []any{"a"}})
		}
		return rapid.OneOf(value(0), rapid.Map(rapid.MapOfN(names, value(depth-1), 0, 3), func(m map[string]any) any { return m }))
	}
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.MapOfN(names, value(3), 0, 4).Draw(t, "whole")
		var fields []domain.Path
		for _, path := range rapid.SliceOfN(rapid.SliceOfN(names, 1, 3), 0, 4).Draw(t, "fields") {
			fields = append(fields, path)
		}
		data, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		picked, err := domain.Pick(data, fields)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(picked, &got); err != nil {
			t.Fatalf("%s: %v", picked, err)
		}
		want := map[string]any{}
		for _, path := range fields {
			if value, ok := at(whole, path); ok {
				put(want, path, value)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%v of %s gives %s; want %v", fields, data, picked, want)
		}
	})
}

func at(object map[string]any, path domain.Path) (any, bool) {
	value, ok := object[path[0]]
	if !ok || len(path) == 1 {
		return value, ok
	}
	inner, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	return at(inner, path[1:])
}

// put sets the value at the path in a copy of what is there, as the value may be a part of another one.
func put(object map[string]any, path domain.Path, value any) {
	if len(path) == 1 {
		object[path[0]] = value
		return
	}
	inner := map[string]any{}
	if there, ok := object[path[0]].(map[string]any); ok {
		for name, value := range there {
			inner[name] = value
		}
	}
	put(inner, path[1:], value)
	object[path[0]] = inner
}
