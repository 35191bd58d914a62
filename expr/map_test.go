package expr

import (
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

func TestMap(t *testing.T) {
	t.Parallel()
	event := domain.Event{Stream: "order-1", Position: 7, Type: "ItemAdded", Data: []byte(`{"sku": "a", "price": 2.50, "at": "2026-01-01T00:00:00Z"}`)}
	for source, want := range map[string]string{
		`{"sku": event.data.sku, "amount": event.data.price * 2}`: `{"amount":5,"sku":"a"}`,
		`{"day": timestamp(event.data.at)}`:                       `{"day":"2026-01-01T00:00:00.000000Z"}`,
		`event.data`:                                              `{"at":"2026-01-01T00:00:00Z","price":2.5,"sku":"a"}`,
		`event.data.price > 3 ? {"a": 1} : null`:                  "null",
		`event.data.sku`:                                          `error: a map gives an object, or null for no record; this one gave a string`,
		`{"a": event.data.none}`:                                  `error: line 1, column 18: event.data has no field "none"`,
	} {
		m, err := CompileMap(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		got := "null"
		record, err := m.Eval(NewEvent(&event))
		switch {
		case err != nil:
			got = "error: " + err.Error()
		case record != nil:
			text, err := AppendJSON(nil, record)
			if err != nil {
				t.Fatal(err)
			}
			got = string(text)
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s gives %s; want %s", source, got, want)
		}
	}
	if _, err := CompileMap("doc"); err == nil {
		t.Error("a map has a document")
	}
}

func TestUses(t *testing.T) {
	t.Parallel()
	all := strings.Join(eventFields, " ")
	for source, want := range map[string]string{
		`{"a": 1}`:                   "",
		`doc`:                        "",
		`{"a": event.recordedAt}`:    "recordedAt",
		`{"a": .event.recordedAt}`:   "recordedAt",
		`{"a": has(event.metadata)}`: "metadata",
		`{"a": event.?data.?a.orValue(event.type)}`:                 "data type",
		`merge(doc, event.data.list.map(x, x + event.position)[0])`: "data position",
		`{"a": event}`:                      all,
		`{"a": [event].map(e, e.type)}`:     all,
		`{"a": cel.bind(e, event, e.data)}`: all,
	} {
		fold, err := CompileFold(ScopeProjection, source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		var got []string
		for _, field := range eventFields {
			if fold.Uses(field) {
				got = append(got, field)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s uses %v; want %s", source, got, want)
		}
	}
}
