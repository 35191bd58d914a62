package folding_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
)

// steps describes a preview of events, given as their data; each is an Added of order-1.
func steps(t *testing.T, fold *folding.Fold, data ...string) string {
	t.Helper()
	var given []folding.GivenEvent
	for _, text := range data {
		given = append(given, folding.GivenEvent{Stream: "order-1", Type: "Added", Data: json.RawMessage(text)})
	}
	events, err := folding.GivenEvents("events", given)
	if err != nil {
		t.Fatal(err)
	}
	p, err := fold.Try(t.Context(), events, nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, s := range p.Steps {
		text := fmt.Sprintf("%d %s %s", s.Event.Position, s.DocumentID, s.Document)
		switch {
		case s.Fault != nil:
			text = fmt.Sprintf("%d %s: %s", s.Event.Position, s.DocumentID, s.Fault.Where)
		case s.Parked:
			text = fmt.Sprintf("%d %s parked", s.Event.Position, s.DocumentID)
		case s.Removed:
			text = fmt.Sprintf("%d %s removed", s.Event.Position, s.DocumentID)
		}
		all = append(all, strings.ReplaceAll(text, " ", ""))
	}
	return strings.Join(all, ", ")
}

// An event has a step for each of its documents. If it cannot be folded into one of them, it takes effect on none, or
// on all others if the document is parked.
func TestPreviewOfEventsWithSeveralDocuments(t *testing.T) {
	t.Parallel()
	definition := domain.Definition{
		Name: "stock", Key: `[{"id": "order", "item": 1}] + event.data.lines.map(l, {"id": l.sku, "item": l.qty})`,
		On: map[string]string{"Added": `item == 0 ? null : {"n": doc.?n.orValue(0) + item}`},
	}
	data := []string{
		`{"lines": [{"sku": "a", "qty": 2}, {"sku": "b", "qty": 3}]}`, `{"lines": []}`, `{"lines": [{"sku": "b", "qty": 0}]}`,
		`{"lines": [{"sku": "c", "qty": 1}, {"sku": "a", "qty": "x"}]}`, `{"lines": [{"sku": "a", "qty": 1}]}`, `{"lines": 1}`,
	}
	for onError, want := range map[domain.OnError]string{
		domain.OnErrorStop: `1order{"n":1}, 1a{"n":2}, 1b{"n":3}, 2order{"n":2}, 3order{"n":3}, 3bremoved, 4a:on.Added`,
		domain.OnErrorPark: `1order{"n":1}, 1a{"n":2}, 1b{"n":3}, 2order{"n":2}, 3order{"n":3}, 3bremoved, 4order{"n":4}, 4c{"n":1}, 4a:on.Added, ` +
			`5order{"n":5}, 5aparked, 6:key`,
	} {
		definition.OnError = onError
		fold, err := folding.Compile(definition)
		if err != nil {
			t.Fatal(err)
		}
		if got := steps(t, fold, data...); got != want {
			t.Errorf("onError %s: the steps are\n%s; want\n%s", onError, got, want)
		}
	}
}

type line struct {
	Of string `json:"of"`
	N  int    `json:"n"`
}

// A rule in Go gives keys, and gets the document's id back. Empty ids are left out.
func TestRulesWithSeveralKeys(t *testing.T) {
	t.Parallel()
	keys := func(event domain.Event) (ids []string, err error) { return ids, json.Unmarshal(event.Data, &ids) }
	handlers := map[string]folding.Handler{
		"fold": folding.HandlerOf(folding.Rule[line]{Keys: keys, FoldInto: func(doc *line, id string, _ domain.Event) (bool, error) {
			*doc = line{id, doc.N + 1}
			return id != "gone", nil
		}}),
		"map":      folding.MapOf(folding.MapRule[line]{Keys: keys, MapTo: func(id string, event domain.Event) (*line, error) { return &line{id, int(event.Position)}, nil }}),
		"plain":    folding.HandlerOf(folding.Rule[line]{Keys: keys, Fold: func(doc *line, _ domain.Event) (bool, error) { doc.N++; return true, nil }}),
		"panicked": folding.HandlerOf(folding.Rule[line]{Keys: func(domain.Event) ([]string, error) { panic("worse") }}),
	}
	many, err := json.Marshal(slices.Repeat([]string{"a"}, 101))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ handler, want string }{
		{"fold", `1a{"of":"a","n":1}, 1goneremoved, 2, 3a{"of":"a","n":2}, 3b{"of":"b","n":1}, 4:key`},
		{"map", `1a{"of":"a","n":1}, 1gone{"of":"gone","n":1}, 2, 3a{"of":"a","n":3}, 3b{"of":"b","n":3}, 4:key`},
		{"plain", `1a{"of":"","n":1}, 1gone{"of":"","n":1}, 2, 3a{"of":"","n":2}, 3b{"of":"","n":1}, 4:key`},
		{"panicked", `1:key`},
	} {
		fold, err := folding.CompileWith(domain.Definition{Name: "p", Handler: c.handler}, handlers)
		if err != nil {
			t.Fatal(err)
		}
		if fold.Distinct() {
			t.Errorf("%s: each event has its own record", c.handler)
		}
		if got := steps(t, fold, `["a", "", "gone"]`, `[""]`, `["a", "b"]`, `["a", "b", "a"]`); got != c.want {
			t.Errorf("%s: the steps are\n%s; want\n%s", c.handler, got, c.want)
		}
		event := folding.NewEvent(&domain.Event{Data: many}, nil)
		if _, fault := fold.Targets(nil, &event); fault == nil || c.handler != "panicked" && !strings.Contains(fault.Error(), "belongs to 101 documents") {
			t.Errorf("%s: an event with many documents gives %v", c.handler, fault)
		}
		if _, _, err := handlers[c.handler].Key(&event); err == nil || errors.Unwrap(err) != nil {
			t.Errorf("%s: a handler around it has a key: %v", c.handler, err)
		}
	}
}
