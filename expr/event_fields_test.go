package expr_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// someJSON draws a value as text, with white space, escapes and names that stand there twice.
func someJSON(t *rapid.T, depth int) string {
	space := func() string { return rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(t, "space") }
	scalars := []string{"0", "-12", "1.5e3", "9223372036854775807", "true", "false", "null", `""`, `"a"`, `"\""`, `"}{][,:\\"`, `"\u00e9\\u"`, `"é"`}
	kind := rapid.IntRange(0, 3).Draw(t, "kind")
	if depth == 0 {
		kind = 3
	}
	if kind == 3 {
		return rapid.SampledFrom(scalars).Draw(t, "scalar")
	}
	var items []string
	for range rapid.IntRange(0, 5).Draw(t, "items") {
		item := space() + someJSON(t, depth-1) + space()
		if kind != 0 {
			name := rapid.SampledFrom([]string{`"a"`, `"b"`, `"c"`, `"a"`, `"\u0061"`, `"é"`, `""`, `"a b"`}).Draw(t, "name")
			if depth > 3 {
				name = rapid.SampledFrom([]string{`"a"`, `"b"`, `"c"`, `"d"`}).Draw(t, "plain name")
			}
			item = space() + name + space() + ":" + item
		}
		items = append(items, item)
	}
	if kind == 0 {
		return space() + "[" + strings.Join(items, ",") + "]" + space()
	}
	return space() + "{" + space() + strings.Join(items, ",") + "}" + space()
}

// A field that is taken out of an event's data or metadata alone is what it is in the whole.
func TestAFieldAloneIsThatOfTheWhole(t *testing.T) {
	t.Parallel()
	programs := make(map[string]*expr.Program)
	compile := func(source string) *expr.Program {
		if programs[source] == nil {
			program, err := expr.Compile(expr.ScopeEvent, source)
			if err != nil {
				t.Fatal(err)
			}
			programs[source] = program
		}
		return programs[source]
	}
	rapid.Check(t, func(t *rapid.T) {
		text := someJSON(t, 4)
		part := rapid.SampledFrom([]string{"data", "metadata"}).Draw(t, "part")
		field := rapid.SampledFrom([]string{"a", "b", "c", "d", "missing"}).Draw(t, "field")
		source := fmt.Sprintf(rapid.SampledFrom([]string{
			"event.%[1]s.%[2]s", "event.%[1]s.?%[2]s.orValue('none')", "has(event.%[1]s.%[2]s)", "[event.%[1]s.%[2]s, event.%[1]s.%[2]s]",
		}).Draw(t, "expression"), part, field)
		event := domain.Event{Data: json.RawMessage(text), Metadata: json.RawMessage(text)}
		program := compile(source)
		got, err := program.Eval(nil, expr.NewEvent(&event))
		whole := expr.NewEvent(&event)
		if _, err := compile("event").Eval(nil, whole); err != nil {
			t.Fatal(err)
		}
		if _, err := compile("event."+part+" == null").Eval(nil, whole); err != nil {
			t.Fatal(err)
		}
		want, wantErr := program.Eval(nil, whole)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || written(t, got) != written(t, want) {
			t.Fatalf("%s of %s: alone it is %s, %v; in the whole %s, %v", source, text, written(t, got), err, written(t, want), wantErr)
		}
	})
}

func written(t *rapid.T, v expr.Value) string {
	if v == nil {
		return "nothing"
	}
	text, err := expr.AppendJSON(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What is not JSON is found out about, unless it stands in a field that nobody asks for.
func TestAFieldOfWhatIsNotJSON(t *testing.T) {
	t.Parallel()
	program, err := expr.Compile(expr.ScopeEvent, "event.data.a")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{``, `{`, `{"a"`, `{"a":`, `{"a":}`, `{"a": 1`, `{"a": 1,}`, `{"a": 1} 2`, `{"a": 01}`, `{"a": "`, `{"a": "\`, `{"a": [1}`, `{"a": tru}`, `{a: 1}`, `"a"`, `[{"a": 1}]`} {
		if v, err := program.Eval(nil, expr.NewEvent(&domain.Event{Data: json.RawMessage(text)})); err == nil {
			t.Errorf("%q: %#v", text, v)
		}
	}
}

// However many fields there are, the last of one name counts.
func TestAFieldOfMany(t *testing.T) {
	t.Parallel()
	program, err := expr.Compile(expr.ScopeEvent, "event.data.f7")
	if err != nil {
		t.Fatal(err)
	}
	for _, count := range []int{1, 31, 32, 33, 1000} {
		var text strings.Builder
		text.WriteString(`{"f7": 1`)
		for i := range count {
			fmt.Fprintf(&text, `, "f%d": %d`, i%100, i)
		}
		text.WriteString("}")
		want := expr.Int(1)
		for i := range count {
			if i%100 == 7 {
				want = expr.Int(i)
			}
		}
		v, err := program.Eval(nil, expr.NewEvent(&domain.Event{Data: json.RawMessage(text.String())}))
		if err != nil || v != want {
			t.Errorf("of %d fields it is %v, %v; want %v", count, v, err, want)
		}
	}
}
