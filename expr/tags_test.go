package expr

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestTags(t *testing.T) {
	t.Parallel()
	_, event := sample()
	for source, want := range map[string][]string{
		`null`: nil, `[]`: nil, `'sku:' + event.data.sku`: {"sku:x"},
		`['b', 'a', 'b']`:                              {"a", "b"},
		`[event.category, event.type]`:                 {event.Stream[:strings.Index(event.Stream, "-")], event.Type},
		`has(event.data.nope) ? ['x'] : []`:            nil,
		`event.data.qty > 3 ? 'many' : null`:           {"many"},
		`['key:' + event.key, event.stream].map(x, x)`: {event.Stream, "key:" + event.Stream[strings.Index(event.Stream, "-")+1:]},
	} {
		compiled, err := CompileTags(source)
		if err != nil {
			t.Fatal(err)
		}
		tags, err := compiled.Eval(NewEvent(&event))
		slices.Sort(want)
		if err != nil || !slices.Equal(tags, want) {
			t.Errorf("%s gives %q, %v; want %q", source, tags, err, want)
		}
	}
	for source, want := range map[string]string{
		`event.data.qty`: "tags are a string", `['a', 1]`: "tag 1 is", `'a b'`: `the tag has ' '`, `''`: "0 bytes",
		`lists.range(33).map(x, string(x))`: "33 tags", `event.data.?sku`: "tags are a string", `event.data.nope`: "nope",
	} {
		compiled, err := CompileTags(source)
		if err != nil {
			t.Fatal(err)
		}
		_, err = compiled.Eval(NewEvent(&event))
		if fault, ok := errors.AsType[*EvalError](err); !ok || !strings.Contains(fault.Error(), want) {
			t.Errorf("%s: %v; want %s", source, err, want)
		}
	}
	for source, want := range map[string]string{
		`event.position`: "event.position", `event.?id`: "event.id", `[event.data.x, string(event.recordedAt)]`: "event.recordedAt",
		`event.tags`: "event.tags", `string(event.occurredAt)`: "event.occurredAt", `event.version`: "event.version", `cel.bind(e, event, e.data.x)`: "the whole event",
		`doc.x`: "doc", ``: "empty", `event.data.`: "1",
	} {
		_, err := CompileTags(source)
		if failure, ok := errors.AsType[*CompileError](err); !ok || !strings.Contains(failure.Error(), want) {
			t.Errorf("%q compiles, or is refused as %v", source, err)
		}
	}
}
