package domain_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

func TestSortKeyOf(t *testing.T) {
	t.Parallel()
	order := []domain.Order{{Path: domain.Path{"a"}, Descending: true}, {Path: domain.Path{"b", "c"}}}
	long := strings.Repeat("ä", domain.MaxOrderedCharacters)
	for data, want := range map[string]domain.SortKey{
		`{}`:                          {Values: []domain.Scalar{{}, {}}},
		`{"a": null, "b": {}}`:        {Values: []domain.Scalar{{}, {}}},
		`{"a": 1.0, "b": {"c": "x"}}`: {Values: []domain.Scalar{whole(1), text("x")}},
		`{"a": true, "b": 3}`:         {Values: []domain.Scalar{truth(true), {}}},
		`{"a": 1, "b": [{"c": 1}]}`:   {Values: []domain.Scalar{whole(1), {}}}, // a path does not lead into lists
		`{"a": "` + long + `"}`:       {Values: []domain.Scalar{text(long), {}}},
		`{"a": "` + long + `x"}`:      {Unordered: true},
		`{"a": []}`:                   {Unordered: true},
		`{"b": {"c": {}}}`:            {Unordered: true},
	} {
		want.ID = "d"
		if got, err := domain.SortKeyOf(domain.Document{ID: "d", Data: json.RawMessage(data)}, order); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%.40s is at %+v, %v; want %+v", data, got, err, want)
		}
	}
	if got, err := domain.SortKeyOf(domain.Document{ID: "d", Data: json.RawMessage(`{"a": []}`)}, nil); err != nil || !reflect.DeepEqual(got, domain.SortKey{ID: "d"}) {
		t.Errorf("without an order it is at %+v, %v", got, err)
	}
	if _, err := domain.SortKeyOf(domain.Document{ID: "d", Data: json.RawMessage(`[]`)}, order); err == nil {
		t.Error("a list has a place in the order")
	}
}

func TestDocumentsInOrder(t *testing.T) {
	t.Parallel()
	ascending := []string{`{}`, `{"a": null}`, `{"a": -1}`, `{"a": 0.5}`, `{"a": 9007199254740993}`, `{"a": ""}`, `{"a": "B"}`, `{"a": "a"}`, `{"a": "a "}`, `{"a": "ä"}`, `{"a": false}`, `{"a": true}`,
		`{"a": {}}`, `{"a": []}`, `{"a": "` + strings.Repeat("a", 251) + `"}`}
	descending := []string{`{"a": true}`, `{"a": false}`, `{"a": "ä"}`, `{"a": "a "}`, `{"a": "a"}`, `{"a": "B"}`, `{"a": ""}`, `{"a": 9007199254740993}`, `{"a": 0.5}`, `{"a": -1}`, `{}`, `{"a": null}`,
		`{"a": {}}`, `{"a": []}`, `{"a": "` + strings.Repeat("a", 251) + `"}`}
	for _, c := range []struct {
		order []domain.Order
		want  []string
	}{
		{[]domain.Order{{Path: domain.Path{"a"}}}, ascending},
		{[]domain.Order{{Path: domain.Path{"a"}, Descending: true}}, descending},
	} {
		var keys []domain.SortKey
		for i, data := range c.want {
			key, err := domain.SortKeyOf(domain.Document{ID: string(rune('A' + i)), Data: json.RawMessage(data)}, c.order)
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, key)
		}
		for i := range keys {
			for j := range keys {
				got := keys[i].Compare(keys[j], c.order)
				if want := whole(int64(i)).Compare(whole(int64(j))); got != want {
					t.Errorf("%+v: %s and %s compare as %d; want %d", c.order, c.want[i], c.want[j], got, want)
				}
			}
		}
	}
}

// Places in an order are totally ordered, and two documents never share one.
func TestPlacesAreTotallyOrdered(t *testing.T) {
	t.Parallel()
	values := rapid.SampledFrom([]string{`null`, `1`, `1.0`, `0.5`, `"a"`, `"b"`, `true`, `[]`, `{"b": 2}`, `{"b": "` + strings.Repeat("x", 300) + `"}`})
	rapid.Check(t, func(t *rapid.T) {
		var order []domain.Order
		for _, path := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "a.b"}), 0, 3, rapid.ID[string]).Draw(t, "paths") {
			order = append(order, domain.Order{Path: strings.Split(path, "."), Descending: rapid.Bool().Draw(t, "descending")})
		}
		var keys []domain.SortKey
		for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"1", "10", "2", "ä", "a", "A"}), 3, 3, rapid.ID[string]).Draw(t, "ids") {
			data := `{"a": ` + values.Draw(t, "a") + `, "b": ` + values.Draw(t, "b") + `}`
			key, err := domain.SortKeyOf(domain.Document{ID: id, Data: json.RawMessage(data)}, order)
			if err != nil {
				t.Fatal(err)
			}
			if key.Unordered != (key.Values == nil && len(order) > 0) {
				t.Fatalf("%s is at %+v", data, key)
			}
			keys = append(keys, key)
		}
		for _, a := range keys {
			for _, b := range keys {
				if a.Compare(b, order) != -b.Compare(a, order) || (a.Compare(b, order) == 0) != (a.ID == b.ID) {
					t.Fatalf("%+v and %+v compare as %d, and as %d", a, b, a.Compare(b, order), b.Compare(a, order))
				}
				if a.Unordered && !b.Unordered && a.Compare(b, order) < 0 {
					t.Fatalf("%+v stands before %+v", a, b)
				}
			}
		}
		slices.SortFunc(keys, func(a, b domain.SortKey) int { return a.Compare(b, order) })
		if keys[0].Compare(keys[2], order) > 0 {
			t.Fatalf("%+v go in a circle", keys)
		}
	})
}

func TestCheckOfQueries(t *testing.T) {
	t.Parallel()
	path := func(name string) domain.Order { return domain.Order{Path: domain.Path{name}} }
	one, two := []domain.Order{path("a")}, []domain.Order{path("a"), path("b")}
	for name, c := range map[string]struct {
		query domain.DocumentQuery
		where string // empty: it can be asked
	}{
		"the first page":             {domain.DocumentQuery{Limit: 1}, ""},
		"in order":                   {domain.DocumentQuery{Limit: 10, Order: two}, ""},
		"behind an id":               {domain.DocumentQuery{Limit: 1, After: &domain.SortKey{ID: "d"}}, ""},
		"behind a place":             {domain.DocumentQuery{Limit: 1, Order: two, After: &domain.SortKey{ID: "d", Values: []domain.Scalar{{}, text("x")}}}, ""},
		"behind one without order":   {domain.DocumentQuery{Limit: 1, Order: one, After: &domain.SortKey{ID: "d", Unordered: true}}, ""},
		"no documents":               {domain.DocumentQuery{}, "limit"},
		"fewer than none":            {domain.DocumentQuery{Limit: -1}, "limit"},
		"four paths":                 {domain.DocumentQuery{Limit: 1, Order: append(slices.Clone(two), path("c"), path("d"))}, "order"},
		"a place of another order":   {domain.DocumentQuery{Limit: 1, Order: one, After: &domain.SortKey{ID: "d", Values: []domain.Scalar{{}, {}}}}, "after"},
		"a place of no order":        {domain.DocumentQuery{Limit: 1, Order: one, After: &domain.SortKey{ID: "d"}}, "after"},
		"a place where none is":      {domain.DocumentQuery{Limit: 1, After: &domain.SortKey{ID: "d", Values: []domain.Scalar{{}}}}, "after"},
		"unordered without an order": {domain.DocumentQuery{Limit: 1, After: &domain.SortKey{ID: "d", Unordered: true}}, "after"},
		"unordered with values":      {domain.DocumentQuery{Limit: 1, Order: one, After: &domain.SortKey{ID: "d", Unordered: true, Values: []domain.Scalar{{}}}}, "after"},
		"an id with U+0000":          {domain.DocumentQuery{Limit: 1, After: &domain.SortKey{ID: "a\x00"}}, "after"},
		"an id that is no text":      {domain.DocumentQuery{Limit: 1, After: &domain.SortKey{ID: "\xff"}}, "after"},
		"a text with U+0000":         {domain.DocumentQuery{Limit: 1, Order: one, After: &domain.SortKey{ID: "d", Values: []domain.Scalar{text("\x00")}}}, "after"},
	} {
		err := c.query.Check()
		refusal, ok := err.(*domain.Error)
		switch {
		case c.where == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.where != "" && (!ok || refusal.Code != domain.CodeInvalidRequest || refusal.Where != c.where):
			t.Errorf("%s: %v; want it refused at %s", name, err, c.where)
		}
	}
}
