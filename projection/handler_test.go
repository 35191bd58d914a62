package projection_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
)

type count struct {
	Count int64  `json:"count"`
	Last  string `json:"last"`
}

// counter counts events by stream, removes the document at End, refuses Bad, and panics at Worse.
var counter = folding.HandlerOf(folding.Rule[count]{
	Key: func(event domain.Event) (string, error) {
		if event.Type == "Skipped" {
			return "", nil
		}
		return event.Stream, nil
	},
	Fold: func(doc *count, event domain.Event) (bool, error) {
		switch event.Type {
		case "Bad":
			return false, errors.New("bad as can be")
		case "Worse":
			panic("worse still")
		}
		doc.Count++
		doc.Last = event.Type
		return event.Type != "End", nil
	},
})

func TestHandlerInGo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	p := b.process(options{handlers: map[string]folding.Handler{"counter": counter}})
	p.start(t, b)
	if _, err := p.catalog.Create(t.Context(), domain.Everyone, domain.Definition{Name: "counts", Handler: "counter"}, "test"); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		b.append(t, tenant, fmt.Sprintf("x-%d", i%3), "Tick", `{}`)
	}
	b.append(t, tenant, "x-1", "Skipped", `{}`)
	last := b.append(t, tenant, "x-2", "End", `{}`)
	got := documents(t, p.catalog, tenant, "counts", last)
	want := map[string]domain.Document{
		"x-0": {ID: "x-0", Version: 28, Data: json.RawMessage(`{"count": 10, "last": "Tick"}`)},
		"x-1": {ID: "x-1", Version: 29, Data: json.RawMessage(`{"count": 10, "last": "Tick"}`)},
	}
	mustEqual(t, got, want)

	for eventType, says := range map[string]string{"Bad": "bad as can be", "Worse": "worse still"} {
		other := b.tenant(t)
		position := b.append(t, other, "x-1", eventType, `{}`)
		_, err := p.catalog.Document(t.Context(), other, "counts", "x-1", projection.Freshness{MinPosition: position})
		if refusal, ok := errors.AsType[*domain.Error](err); !ok || refusal.Code != domain.CodeFaulted || !strings.Contains(refusal.Message, says) {
			t.Errorf("after %s: %v", eventType, err)
		}
	}
}

type kept struct {
	Value json.RawMessage `json:"value"`
}

// Numbers written by Go code reach the database in canonical form.
func TestNumbersOfHandlersInGo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	keeper := folding.HandlerOf(folding.Rule[kept]{
		Key: func(event domain.Event) (string, error) { return event.Stream, nil },
		Fold: func(doc *kept, event domain.Event) (bool, error) {
			doc.Value = event.Data
			return true, nil
		},
	})
	p := b.process(options{handlers: map[string]folding.Handler{"keeper": keeper}})
	p.start(t, b)
	if _, err := p.catalog.Create(t.Context(), domain.Everyone, domain.Definition{Name: "kept", Handler: "keeper"}, "test"); err != nil {
		t.Fatal(err)
	}
	last := b.append(t, tenant, "x-1", "Kept", `[1.50, 3.0, 0.1000000000000000055511151231257827, 12345678901234567.50, 9007199254740993.0, "1.0"]`)
	got := string(documents(t, p.catalog, tenant, "kept", last)["x-1"].Data)
	if want := `{"value":[1.5,3,0.1,12345678901234568,9007199254740993,"1.0"]}`; strings.ReplaceAll(got, " ", "") != want {
		t.Errorf("the document is %s; want %s", got, want)
	}
}
