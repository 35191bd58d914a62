package selection

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

func TestSelectionMatches(t *testing.T) {
	t.Parallel()
	events := []domain.Event{
		{Position: 1, Stream: "order-1", Type: "Placed", Data: []byte(`{"total": 3}`), Tags: []string{"shop:s1"}},
		{Position: 2, Stream: "order-2", Type: "Placed", Data: []byte(`{}`)},
		{Position: 3, Stream: "invoice-1", Type: "Sent", Data: []byte(`{"total": 30}`), Metadata: []byte(`{"by": "me"}`)},
		{Position: 4, Stream: "order-1", Type: "Paid", Data: []byte(`{"total": "much"}`), Tags: []string{"a", "b", "c"}},
	}
	for name, test := range map[string]struct {
		wanted domain.Selection
		want   []int64
	}{
		"everything":          {domain.Selection{}, []int64{1, 2, 3, 4}},
		"a stream":            {domain.Selection{Stream: "order-1"}, []int64{1, 4}},
		"categories":          {domain.Selection{Categories: []string{"user", "invoice"}}, []int64{3}},
		"types":               {domain.Selection{Types: []string{"Paid", "Sent"}}, []int64{3, 4}},
		"a stream's type":     {domain.Selection{Stream: "order-1", Types: []string{"Paid"}}, []int64{4}},
		"a query":             {domain.Selection{Query: domain.Query{{Tags: []string{"shop:s1"}}, {Types: []string{"Sent"}}}}, []int64{1, 3}},
		"a query's category":  {domain.Selection{Categories: []string{"order"}, Query: domain.Query{{Types: []string{"Placed", "Paid"}, Tags: []string{"b", "a"}}}}, []int64{4}},
		"types and a query":   {domain.Selection{Types: []string{"Paid"}, Query: domain.Query{{Types: []string{"Placed"}}}}, nil},
		"a filter":            {domain.Selection{Filter: `event.data.total > 2`}, []int64{1, 3}}, // no such field, and no number: no match
		"what is not a match": {domain.Selection{Filter: `!(event.data.total > 2)`}, nil},
		"a filter of all":     {domain.Selection{Filter: `event.data.?total.orValue(0) != 0 || event.key == "2"`}, []int64{1, 2, 3, 4}},
		"metadata":            {domain.Selection{Filter: `event.metadata.by == "me"`}, []int64{3}},
	} {
		s, err := New(test.wanted)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []int64
		for i := range events {
			if s.Matches(&events[i]) {
				got = append(got, events[i].Position)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s selects %d; want %d", name, got, test.want)
		}
	}
}

func TestSelectionNarrowsAQuery(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		wanted            domain.Selection
		categories, types []string
	}{
		{domain.Selection{Filter: "true"}, nil, nil},
		{domain.Selection{Categories: []string{"a", "b"}, Types: []string{"T"}}, []string{"a", "b"}, []string{"T"}},
		{domain.Selection{Stream: "order-7"}, []string{"order"}, nil},
		{domain.Selection{Query: domain.Query{{Types: []string{"B"}}, {Types: []string{"A", "B"}, Tags: []string{"t"}}}}, nil, []string{"A", "B"}},
		{domain.Selection{Query: domain.Query{{Types: []string{"B"}}, {Tags: []string{"t"}}}}, nil, nil},
		{domain.Selection{Types: []string{"T"}, Query: domain.Query{{Types: []string{"B"}}}}, nil, []string{"T"}},
	} {
		s, err := New(test.wanted)
		if err != nil {
			t.Fatal(err)
		}
		q := domain.LogQuery{From: 3, Limit: 5}
		s.Narrow(&q)
		if !slices.Equal(q.Categories, test.categories) || !slices.Equal(q.Types, test.types) || q.From != 3 {
			t.Errorf("%+v narrows to %+v", test.wanted, q)
		}
	}
}

func TestSelectionRefuses(t *testing.T) {
	t.Parallel()
	many := slices.Repeat([]string{"a"}, 101)
	for name, test := range map[string]struct {
		wanted domain.Selection
		code   domain.Code
		where  string
		says   string
	}{
		"a stream's name": {domain.Selection{Stream: "order"}, domain.CodeInvalidRequest, "source.stream", "category-id"},
		"a category":      {domain.Selection{Categories: []string{"order", "a-b"}}, domain.CodeInvalidRequest, "source.categories[1]", "'-'"},
		"categories":      {domain.Selection{Categories: many}, domain.CodeInvalidRequest, "source.categories", "at most 100"},
		"a query":         {domain.Selection{Query: make(domain.Query, 101)}, domain.CodeTooLarge, "query.items", "at most 100"},
		"a tag":           {domain.Selection{Query: domain.Query{{}, {Tags: []string{"a", "b c"}}}}, domain.CodeInvalidRequest, "query.items[1].tags[1]", "printable"},
		"both":            {domain.Selection{Stream: "order-1", Categories: []string{"order"}}, domain.CodeInvalidRequest, "source", "not both"},
		"a type":          {domain.Selection{Types: []string{""}}, domain.CodeInvalidRequest, "types[0]", "0 bytes"},
		"types":           {domain.Selection{Types: many}, domain.CodeInvalidRequest, "types", "at most 100"},
		"a filter":        {domain.Selection{Filter: "event.dat > 1"}, domain.CodeInvalidDefinition, "filter", "its fields are category, data"},
		"no condition":    {domain.Selection{Filter: "event.key"}, domain.CodeInvalidDefinition, "filter", "true or false"},
		"a long filter":   {domain.Selection{Filter: "true" + strings.Repeat(" ", 8000)}, domain.CodeInvalidDefinition, "filter", "at most 8000"},
	} {
		_, err := New(test.wanted)
		failure, ok := errors.AsType[*domain.Error](err)
		if !ok || failure.Code != test.code || failure.Where != test.where || !strings.Contains(failure.Message, test.says) {
			t.Errorf("%s is refused with %+v", name, err)
		}
	}
}

// Readers take turns for filters, and for queries with many names.
func TestSelectionTakesTurns(t *testing.T) {
	t.Parallel()
	large := slices.Repeat(domain.Query{{Types: []string{"A"}, Tags: []string{"a", "b", "c", "d"}}}, 10)
	for _, test := range []struct {
		wanted domain.Selection
		want   bool
	}{
		{domain.Selection{Types: []string{"A"}}, false}, {domain.Selection{Filter: "true"}, true},
		{domain.Selection{Query: large[:3]}, false}, {domain.Selection{Query: large}, true},
	} {
		s, err := New(test.wanted)
		if err != nil {
			t.Fatal(err)
		}
		if s.TakesTurns() != test.want {
			t.Errorf("%+v takes turns: %t", test.wanted, s.TakesTurns())
		}
	}
}
