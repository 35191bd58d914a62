package expr

import (
	"fmt"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

func TestTargets(t *testing.T) {
	t.Parallel()
	_, event := sample()
	for source, want := range map[string]string{
		`event.stream`:        `order-42-b null`,
		`null`:                ``,
		`[]`:                  ``,
		`['a', null, 'b']`:    `a null, b null`,
		`[{'id': 'a'}]`:       `a null`,
		`[{'id': null}, 'b']`: `b null`,
		`['all', {'id': event.data.sku, 'item': {'qty': event.data.qty}}]`: `all null, x {"qty":4}`,
		`[{'id': 'a', 'item': event.occurredAt}]`:                          `a "2026-01-31T10:59:00.000000Z"`,
		`lists.range(100).map(i, string(i))`:                               ``,
	} {
		key, err := CompileKey(source)
		if err != nil {
			t.Fatal(err)
		}
		targets, err := key.Targets(nil, NewEvent(&event))
		if err != nil {
			t.Errorf("%s: %v", source, err)
		}
		if len(targets) == domain.MaxEventDocuments {
			continue
		}
		var got []string
		for _, target := range targets {
			item := "null"
			if target.Item != nil {
				text, err := AppendJSON(nil, target.Item)
				if err != nil {
					t.Fatal(err)
				}
				item = string(text)
			}
			got = append(got, target.ID+" "+item)
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s gives %s; want %s", source, text, want)
		}
	}
	for source, want := range map[string]string{
		`1`:                                  "a key is a string",
		`{'id': 'a'}`:                        "this one is an object; write [{",
		`['a', 'b', 'a']`:                    `the id "a" twice`,
		`['a', {'id': 'a'}]`:                 `the id "a" twice`,
		`['a', 2]`:                           "element 1 of the key: a key is a string",
		`['a', '']`:                          "element 1 of the key: the key is an empty string",
		`[['a']]`:                            "element 0 of the key",
		`[{'item': 1}]`:                      "element 0 of the key: it has no id",
		`[{'id': 'a', 'qty': 1}]`:            `element 0 of the key: it has a field "qty"`,
		`[{'id': 'a', 'item': doc.a}]`:       "",
		`[{'id': 'a', 'item': type(1)}]`:     "string(type(x))",
		`[{'id': 'a', 'item': '\u0000'}]`:    "U+0000",
		`lists.range(101).map(i, string(i))`: "more than 100 documents",
		`lists.range(11).map(i, {'id': string(i), 'item': lists.range(20000)})`: "come to more than 1048576 bytes",
	} {
		key, err := CompileKey(source)
		if want == "" {
			if err == nil {
				t.Errorf("%s compiles", source)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if targets, err := key.Targets(nil, NewEvent(&event)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, %v; want %q", source, targets, err, want)
		}
	}
}

// A fold and a map read the document's id and the item of their event for it. Names of an expression hide them.
func TestKeyAndItem(t *testing.T) {
	t.Parallel()
	doc, event := sample()
	target := Target{ID: "p7", Item: NewObject(map[string]Value{"qty": Int(2)})}
	for source, want := range map[string]string{
		`{'id': key, 'qty': item.qty * 3}`:                                `{"id":"p7","qty":6}`,
		`{'all': [1, 2].map(item, item), 'keys': {'a': 1}.map(key, key)}`: `{"all":[1,2],"keys":["a"]}`,
		`{'key': event.key, 'item': .item.qty}`:                           `{"item":2,"key":"42-b"}`,
	} {
		record, err := CompileMap(source)
		if err != nil {
			t.Fatal(err)
		}
		for name, eval := range map[string]func(*Event) (*Object, error){
			"a map":  record.Eval,
			"a fold": func(e *Event) (*Object, error) { return mustFold(t, source).Eval(doc, e) },
		} {
			got, err := eval(NewEvent(&event).WithTarget(target).Copy())
			if err != nil {
				t.Fatalf("%s: %v", source, err)
			}
			if text, err := AppendJSON(nil, got); string(text) != want || err != nil {
				t.Errorf("%s as %s gives %s, %v; want %s", source, name, text, err, want)
			}
		}
	}
	without, err := mustFold(t, `{'item': item, 'key': key}`).Eval(doc, NewEvent(&event).WithTarget(Target{ID: "a"}))
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(without.Get("item")); text != "{} true" {
		t.Errorf("without an item it is %s", text)
	}
	for _, scope := range []Scope{ScopeEvent, ScopeAggregate, ScopeDocument} {
		if _, err := Compile(scope, "key"); err == nil {
			t.Errorf("scope %d has a variable key", scope)
		}
	}
}
