package folding_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
)

func TestChanges(t *testing.T) {
	t.Parallel()
	base := domain.Definition{
		Name: "a", Source: domain.Source{Categories: []string{"order", "invoice"}}, Initial: json.RawMessage(`{"n": 0, "a": 1}`),
		On: map[string]string{"Placed": "doc", "Paid": "doc"}, Indexes: []string{"n"},
	}
	edit := func(change func(*domain.Definition)) *domain.Definition {
		d := base
		d.On = map[string]string{"Placed": "doc", "Paid": "doc"}
		change(&d)
		return &d
	}
	handler := domain.Definition{Name: "a", Handler: "h"}
	for name, test := range map[string]struct {
		before, after *domain.Definition
		want          string
		rebuild       bool
	}{
		"the same, otherwise written": {&base, edit(func(d *domain.Definition) {
			d.Database, d.Key, d.Mode, d.OnError = "default", "event.stream", "async", "stop"
			d.Source.Categories, d.Initial = []string{"invoice", "order"}, json.RawMessage(`{"a": 1, "n": 0}`)
		}), "", false},
		"a query": {&base, edit(func(d *domain.Definition) {
			d.Source.Query.Items = domain.Query{{Tags: []string{"b", "a"}, Types: []string{"Paid"}}, {Tags: []string{"a"}}}
		}), `source.query  -> {"items":[{"tags":["a"]},{"types":["Paid"],"tags":["a","b"]}]}; `, true},
		"the same query": {
			edit(func(d *domain.Definition) {
				d.Source.Query.Items = domain.Query{{Tags: []string{"b", "a"}}, {Types: []string{"A"}}}
			}),
			edit(func(d *domain.Definition) {
				d.Source.Query.Items = domain.Query{{Types: []string{"A"}, Tags: []string{}}, {Tags: []string{"a", "b", "b"}}}
			}), "", false,
		},
		"a rule": {&base, edit(func(d *domain.Definition) {
			d.On["Placed"], d.On["Sent"] = `merge(doc, {"a": "<b>"})`, "null"
			delete(d.On, "Paid")
		}), `on.Placed "doc" -> "merge(doc, {\"a\": \"<b>\"})"; on.Sent  -> "null"; on.Paid "doc" -> ; `, true},
		"what needs no rebuild": {&base, edit(func(d *domain.Definition) { d.OnError, d.Assert = "park", []string{"doc.n > 0"} }),
			`onError "stop" -> "park"; assert  -> ["doc.n > 0"]; `, false},
		"the place": {&base, edit(func(d *domain.Definition) { d.Database, d.PartitionBy, d.Indexes = "mongo", "a", nil }),
			`database "default" -> "mongo"; partitionBy  -> "a"; indexes ["n"] -> ; `, true},
		"a new one": {nil, &base, `source.categories  -> ["invoice","order"]; initial  -> {"a":1,"n":0}; on.Paid  -> "doc"; on.Placed  -> "doc"; indexes  -> ["n"]; `, true},
		"a handler": {nil, &handler, `handler  -> "h"; `, true},
		"one gone":  {&handler, nil, `handler "h" -> ; `, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, c := range folding.Changes(test.before, test.after) {
				got += fmt.Sprintf("%s %s -> %s; ", c.Field, c.Before, c.After)
			}
			if got != test.want {
				t.Errorf("changes are\n%s, want\n%s", got, test.want)
			}
			if test.before == nil || test.after == nil {
				return
			}
			if rebuild := !folding.SameDocuments(*test.before, *test.after); rebuild != test.rebuild {
				t.Errorf("a rebuild is needed: %t", rebuild)
			}
		})
	}
}

// Changes must report every field of definitions, including newly added ones.
func TestChangesKnowEveryField(t *testing.T) {
	t.Parallel()
	for i := range reflect.TypeFor[domain.Definition]().NumField() {
		of := reflect.TypeFor[domain.Definition]().Field(i)
		if of.Name == "Name" {
			continue // a projection keeps its name
		}
		var before, after domain.Definition
		f := reflect.ValueOf(&after).Elem().Field(i)
		switch value := f.Interface().(type) {
		case string, domain.Mode, domain.OnError:
			f.SetString("changed")
		case bool:
			f.SetBool(true)
		case []string:
			f.Set(reflect.ValueOf([]string{"changed"}))
		case map[string]string:
			f.Set(reflect.ValueOf(map[string]string{"Changed": "doc"}))
		case json.RawMessage:
			f.Set(reflect.ValueOf(json.RawMessage(`{"changed": 1}`)))
		case *domain.Totals:
			f.Set(reflect.ValueOf(&domain.Totals{Sum: []string{"changed"}}))
		case domain.Source:
			f.Set(reflect.ValueOf(domain.Source{Categories: []string{"changed"}}))
		default:
			t.Fatalf("this test does not know how to change %s, a %T", of.Name, value)
		}
		if len(folding.Changes(&before, &after)) == 0 {
			t.Errorf("a change of %s is not reported", of.Name)
		}
		if folding.SameDefinition(before, after) {
			t.Errorf("with another %s definitions are said to be the same", of.Name)
		}
		if same := folding.SameDocuments(before, after); same != slices.Contains([]string{"OnError", "PublishChanges", "Totals", "Assert"}, of.Name) {
			t.Errorf("with another %s documents are said to be the same: %t", of.Name, same)
		}
	}
}
