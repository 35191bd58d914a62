package projection_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

// told formats a preview so that it is easy to compare.
func told(p folding.Preview) string {
	var b strings.Builder
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "%d %s", s.Event.Position, s.Event.Type)
		switch {
		case s.Fault != nil:
			fmt.Fprintf(&b, " %s fault at %s before %s", s.DocumentID, s.Fault.Where, s.Fault.Before)
		case s.Parked:
			fmt.Fprintf(&b, " %s parked", s.DocumentID)
		case s.Removed:
			fmt.Fprintf(&b, " %s removed", s.DocumentID)
		case s.DocumentID != "":
			fmt.Fprintf(&b, " %s %s", s.DocumentID, s.Document)
		}
		b.WriteString("; ")
	}
	for _, d := range p.Documents {
		fmt.Fprintf(&b, "[%s@%d %s]", d.ID, d.Version, d.Data)
	}
	return b.String()
}

func TestPreview(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant, other := b.tenant(t), b.tenant(t)
	catalog := b.process(options{}).catalog
	for _, sku := range []string{"a", "b"} {
		b.append(t, tenant, "order-1", "ItemAdded", fmt.Sprintf(`{"sku": %q, "n": 1}`, sku))
	}
	b.append(t, tenant, "invoice-1", "ItemAdded", `{"n": 7}`)
	b.append(t, tenant, "order-1", "Ignored", `{}`)
	b.append(t, tenant, "order-2", "ItemAdded", `{"n": 2}`)
	b.append(t, tenant, "order-1", "Cancelled", `{}`)
	folds := domain.Definition{
		Source: domain.Source{Categories: []string{"order"}}, Initial: json.RawMessage(`{"n": 0}`),
		On: map[string]string{"ItemAdded": `{"n": doc.n + event.data.n}`, "Cancelled": "null"},
	}
	maps := domain.Definition{Map: map[string]string{"ItemAdded": `event.data.n > 1 ? {"n": event.data.n} : null`}, Key: "event.stream"}
	parks := folds
	parks.OnError = domain.OnErrorPark
	given := func(lines ...string) (events []folding.GivenEvent) {
		for _, line := range lines {
			fields := strings.Fields(line)
			events = append(events, folding.GivenEvent{Stream: fields[0], Type: fields[1], Data: json.RawMessage(fields[2])})
		}
		return events
	}
	for name, test := range map[string]struct {
		q    projection.PreviewQuery
		want string
	}{
		"a stream": {projection.PreviewQuery{Definition: folds, Stream: "order-1"},
			`1 ItemAdded order-1 {"n":1}; 2 ItemAdded order-1 {"n":2}; 4 Ignored; 6 Cancelled order-1 removed; `},
		"the last of its source": {projection.PreviewQuery{Definition: folds, Last: 3},
			`2 ItemAdded order-1 {"n":1}; 5 ItemAdded order-2 {"n":2}; 6 Cancelled order-1 removed; [order-2@5 {"n":2}]`},
		"more than there are": {projection.PreviewQuery{Definition: folds, Last: 1000},
			`1 ItemAdded order-1 {"n":1}; 2 ItemAdded order-1 {"n":2}; 5 ItemAdded order-2 {"n":2}; 6 Cancelled order-1 removed; [order-2@5 {"n":2}]`},
		"given": {projection.PreviewQuery{Definition: folds, Given: given(`order-9 ItemAdded {"n":5}`, `other-1 ItemAdded {"n":1}`, `order-9 ItemAdded {"n":1}`)},
			`1 ItemAdded order-9 {"n":5}; 2 ItemAdded; 3 ItemAdded order-9 {"n":6}; [order-9@3 {"n":6}]`},
		"a fault ends it": {projection.PreviewQuery{Definition: folds, Given: given(`order-9 ItemAdded {"n":5}`, `order-9 ItemAdded {"n":"x"}`, `order-9 ItemAdded {"n":1}`)},
			`1 ItemAdded order-9 {"n":5}; 2 ItemAdded order-9 fault at on.ItemAdded before {"n":5}; [order-9@1 {"n":5}]`},
		"a fault parks": {projection.PreviewQuery{Definition: parks, Given: given(`order-9 ItemAdded {"n":5}`, `order-9 ItemAdded {}`, `order-9 ItemAdded {"n":1}`, `order-8 ItemAdded {"n":1}`)},
			`1 ItemAdded order-9 {"n":5}; 2 ItemAdded order-9 fault at on.ItemAdded before {"n":5}; 3 ItemAdded order-9 parked; 4 ItemAdded order-8 {"n":1}; [order-8@4 {"n":1}][order-9@1 {"n":5}]`},
		"a map": {projection.PreviewQuery{Definition: maps, Given: given(`order-9 ItemAdded {"n":1}`, `order-9 ItemAdded {"n":2}`, `order-9 ItemAdded {"n":1}`)},
			`1 ItemAdded order-9 removed; 2 ItemAdded order-9 {"n":2}; 3 ItemAdded order-9 {"n":2}; [order-9@2 {"n":2}]`},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := catalog.Preview(t.Context(), tenant, test.q)
			if got := told(p); err != nil || got != test.want {
				t.Errorf("%v, got\n%s, want\n%s", err, got, test.want)
			}
		})
	}
	wrong := folds
	wrong.On = map[string]string{"ItemAdded": "doc.", "*": "dok"}
	grows := domain.Definition{On: map[string]string{"*": `{"t": doc.?t.orValue("x") + doc.?t.orValue("x")}`}}
	thirty := make([]folding.GivenEvent, 30)
	for i := range thirty {
		thirty[i] = folding.GivenEvent{Type: "A", Data: json.RawMessage("1")}
	}
	for name, test := range map[string]struct {
		tenant domain.TenantID
		q      projection.PreviewQuery
		code   domain.Code
		text   string
	}{
		"no such stream":     {tenant, projection.PreviewQuery{Definition: folds, Stream: "order-7"}, domain.CodeNotFound, "order-7"},
		"another tenant's":   {other, projection.PreviewQuery{Definition: folds, Stream: "order-1"}, domain.CodeNotFound, "order-1"},
		"does not compile":   {tenant, projection.PreviewQuery{Definition: wrong, Last: 1}, domain.CodeInvalidDefinition, "on.ItemAdded"},
		"too many":           {tenant, projection.PreviewQuery{Definition: folds, Last: 1001}, domain.CodeInvalidRequest, "1000"},
		"none":               {tenant, projection.PreviewQuery{Definition: folds}, domain.CodeInvalidRequest, "1000"},
		"the operator's log": {domain.Everyone, projection.PreviewQuery{Definition: folds, Last: 1}, domain.CodeInvalidRequest, "give the events"},
		"a bad stream":       {tenant, projection.PreviewQuery{Definition: folds, Given: []folding.GivenEvent{{Stream: "order", Type: "A", Data: json.RawMessage("1")}}}, domain.CodeInvalidRequest, "source.events[0].stream"},
		"no data":            {tenant, projection.PreviewQuery{Definition: folds, Given: []folding.GivenEvent{{Type: "A"}}}, domain.CodeInvalidJSON, "source.events[0].data"},
		"too large":          {tenant, projection.PreviewQuery{Definition: grows, Given: thirty}, domain.CodeTooLarge, "fewer events"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := catalog.Preview(t.Context(), test.tenant, test.q)
			if !domain.IsCode(err, test.code) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%v, want %s with %q", err, test.code, test.text)
			}
		})
	}
	if page, err := catalog.List(t.Context(), tenant); err != nil || len(page) != 0 {
		t.Errorf("previews have left %v, %v", page, err)
	}
}

// A preview's final documents are those of a fold from scratch, and so are those after each step.
func TestPreviewIsAFold(t *testing.T) {
	t.Parallel()
	definition := folding.WithDefaults(domain.Definition{
		Name: "sums", Source: domain.Source{Categories: []string{"x", "y"}}, Key: `event.data.to == "" ? null : [event.data.to, event.type == "Set" ? null : {"id": "all", "item": 2}]`,
		Initial: json.RawMessage(`{"sum": 0}`),
		On: map[string]string{
			"Added": `merge(doc, {"sum": doc.sum + event.data.n * (key == "all" ? item : 1), "last": event.version})`, "Gone": "null", "Set": `{"sum": event.data.n}`,
		},
	})
	fold, err := folding.Compile(definition)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		given := make([]folding.GivenEvent, rapid.IntRange(1, 40).Draw(t, "events"))
		for i := range given {
			given[i] = folding.GivenEvent{
				Stream: rapid.SampledFrom([]string{"x-1", "x-2", "y-1", "z-1"}).Draw(t, "stream"),
				Type:   rapid.SampledFrom([]string{"Added", "Added", "Set", "Gone", "Other"}).Draw(t, "type"),
				Data: json.RawMessage(fmt.Sprintf(`{"n": %d, "to": %q}`, rapid.IntRange(-5, 5).Draw(t, "n"),
					rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "to"))),
			}
		}
		events, err := folding.GivenEvents("events", given)
		if err != nil {
			t.Fatal(err)
		}
		p, err := fold.Try(t.Context(), events, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]domain.Document)
		for _, d := range p.Documents {
			got[d.ID] = d
		}
		mustEqual(t, got, fromScratch(t, definition, events))
		stepwise := make(map[string]domain.Document)
		for _, step := range p.Steps {
			if step.Removed {
				delete(stepwise, step.DocumentID)
			} else if step.DocumentID != "" {
				stepwise[step.DocumentID] = domain.Document{ID: step.DocumentID, Version: step.Event.Position, Data: step.Document}
			}
		}
		mustEqual(t, stepwise, got)
	})
}
