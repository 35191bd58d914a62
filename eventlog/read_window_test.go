package eventlog_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// longLog appends 12,000 events of two categories. Every 20th is an invoice's, every 3000th is of a rare type, and
// every 500th is tagged.
func longLog(t *testing.T, s *tables.Tables, tenant domain.TenantID) []domain.Event {
	t.Helper()
	n := 0
	for range 12 {
		var request domain.Append
		for stream := range 100 {
			name, events := fmt.Sprintf("invoice-%d", stream), 1
			if stream >= 50 {
				name, events = fmt.Sprintf("order-%d", stream), 19
			}
			request.Streams = append(request.Streams, tablestest.Counted(name, domain.Any, events).Streams...)
		}
		for i := range request.Streams {
			for j := range request.Streams[i].Events {
				e := &request.Streams[i].Events[j]
				if n++; n%3000 == 0 {
					e.Type = "Rare"
				} else if domain.Category(request.Streams[i].Stream) == "invoice" {
					e.Type = "Sent"
				}
				if n%500 == 0 {
					e.Tags = []string{"all", fmt.Sprintf("own:%d", n%1000)}
				}
			}
		}
		tablestest.Append(t, s, tenant, request)
	}
	return tablestest.WholeLog(t, s, tenant)
}

// Reads that go over the log by windows, or by the index of tags, give what a filter over the whole log gives.
func TestScatteredReadsAgainstAFilter(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	log := longLog(t, s, tenant)
	filter := func(from, to int64, categories, types []string) (found []domain.Event) {
		for _, e := range log {
			if e.Position >= from && e.Position <= to && (len(categories) == 0 || slices.Contains(categories, domain.Category(e.Stream))) &&
				(len(types) == 0 || slices.Contains(types, e.Type)) {
				found = append(found, e)
			}
		}
		return found
	}
	read := func(t *rapid.T, q domain.LogQuery) []domain.Event {
		events, err := s.ReadLog(t.Context(), tenant, q)
		if err != nil {
			t.Fatal(err)
		}
		return events
	}
	rapid.Check(t, func(t *rapid.T) {
		q := domain.LogQuery{
			From:       rapid.Int64Range(1, int64(len(log))).Draw(t, "from"),
			Limit:      rapid.SampledFrom([]int{1, 7, 100, 20_000}).Draw(t, "limit"),
			MaxBytes:   rapid.SampledFrom([]int{0, 100, 100_000}).Draw(t, "maxBytes"),
			Categories: rapid.SampledFrom([][]string{nil, {"order", "invoice"}, {"invoice", "none"}}).Draw(t, "categories"),
			Types:      rapid.SampledFrom([][]string{{"Rare"}, {"Sent"}, {"Sent", "Rare"}, {"None"}}).Draw(t, "types"),
			Direction:  rapid.SampledFrom([]domain.Direction{domain.Forward, domain.Backward}).Draw(t, "direction"),
		}
		want := filter(q.From, int64(len(log)), q.Categories, q.Types)
		if q.Direction == domain.Backward {
			want = filter(1, q.From, q.Categories, q.Types)
			slices.Reverse(want)
		}
		got := read(t, q)
		if len(got) > q.Limit || len(got) > len(want) || !reflect.DeepEqual(got, slices.Clone(want[:len(got)])) && len(got) > 0 {
			t.Fatalf("%+v gives %d events, and a filter gives others: %d", q, len(got), len(want))
		}
		if len(got) < min(q.Limit, len(want)) && (q.MaxBytes == 0 || bytesOf(got) < q.MaxBytes) {
			t.Fatalf("%+v gives %d of %d events", q, len(got), len(want))
		}
	})
}

// The index finds the events of a query however many others there are: reads of the log, reads for a projection, and
// counts.
func TestLongReadsByTags(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	log := longLog(t, s, tenant)
	query := domain.Query{{Tags: []string{"all", "own:0"}}, {Types: []string{"Rare"}, Tags: []string{"own:0"}}}
	var want []domain.Event
	for _, e := range log {
		if query.Matches(e.Type, e.Tags) {
			want = append(want, e)
		}
	}
	if len(want) != 12 {
		t.Fatalf("the log has %d events for the query", len(want))
	}
	source := domain.Source{Query: domain.QueryForm{Items: query}}
	head := int64(len(log))
	// The first item's events are counted along "all", and the second's are four.
	if n, err := s.CountEvents(t.Context(), tenant, source, nil, 0, head); err != nil || n != 28 {
		t.Errorf("CountEvents = %d, %v", n, err)
	}
	for after, any := range map[int64]bool{0: true, want[11].Position - 1: true, want[11].Position: false} {
		if found, err := s.AnyEvent(t.Context(), tenant, source, nil, after, head); err != nil || found != any {
			t.Errorf("AnyEvent after %d = %v, %v", after, found, err)
		}
	}

	// An event of another category or type than the source's is none of its events, whatever its tags.
	for types, any := range map[string]bool{"Rare": true, "Counted": true, "Sent": false} {
		narrow := domain.Source{Categories: []string{"order", "invoice"}, Query: domain.QueryForm{Items: domain.Query{{Tags: []string{"own:0"}}}}}
		if types == "Sent" {
			narrow.Categories = []string{"order"}
		}
		if found, err := s.AnyEvent(t.Context(), tenant, narrow, []string{types}, 0, head); err != nil || found != any {
			t.Errorf("AnyEvent of %s = %v, %v", types, found, err)
		}
	}

	q := domain.LogQuery{From: 1, Limit: 5, MaxBytes: 1 << 20, Query: query}
	events, err := s.ReadLog(t.Context(), tenant, q)
	if err != nil || !reflect.DeepEqual(events, want[:5]) {
		t.Errorf("ReadLog gives %d events, want the first 5 that the query matches; %v", len(events), err)
	}
	q.MaxBytes = 1
	if events, err = s.ReadLog(t.Context(), tenant, q); err != nil || !reflect.DeepEqual(events, want[:1]) {
		t.Errorf("ReadLog of few bytes gives %d events; %v", len(events), err)
	}
	q.Limit, q.MaxBytes, q.To = 100, 0, want[10].Position
	if events, err = s.ReadLog(t.Context(), tenant, q); err != nil || !reflect.DeepEqual(events, want[:11]) {
		t.Errorf("ReadLog up to the last but one gives %d events; %v", len(events), err)
	}

	for _, c := range []struct {
		query domain.LogQuery
		want  []domain.Event
	}{
		{domain.LogQuery{Limit: 5, MaxBytes: 1 << 20, Query: query}, want},
		{domain.LogQuery{Limit: 100, MaxBytes: 1 << 20, Query: query}, want},
		{domain.LogQuery{Limit: 3, MaxBytes: 1 << 20, Types: []string{"Rare"}}, nil},
		{domain.LogQuery{Limit: 100, MaxBytes: 1, Types: []string{"Rare"}}, nil},
		{domain.LogQuery{Limit: 100, MaxBytes: 1 << 20, Types: []string{"Sent"}, Categories: []string{"order", "invoice"}}, nil},
	} {
		if c.want == nil {
			for _, e := range log {
				if slices.Contains(c.query.Types, e.Type) {
					c.want = append(c.want, e)
				}
			}
		}
		var got []domain.Event
		rows, other := 0, pg.Query{Statement: &pg.Statement{Name: "one", SQL: "select 1::bigint where $1::bigint = 1"}, Params: [][]byte{pg.Int8Param(1)}}
		other.Row = func([][]byte) error { rows++; return nil }
		for c.query.From = 1; c.query.From <= head; {
			rows = 0
			reading, err := s.Log.ReadWith(t.Context(), tenant, c.query, func() { rows = 0 }, other)
			if err != nil || rows != 1 || len(reading.Events) > c.query.Limit || reading.Head > head {
				t.Fatalf("ReadWith(%+v) gives %d events up to %d, %d rows; %v", c.query, len(reading.Events), reading.Head, rows, err)
			}
			next := reading.Head + 1
			for _, e := range reading.Events {
				if len(c.query.Query) == 0 || query.Matches(e.Type, e.Tags) {
					got = append(got, e)
				}
			}
			if n := len(reading.Events); n == c.query.Limit {
				next = reading.Events[n-1].Position + 1
			}
			c.query.From = next
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v gives %d events, want %d", c.query, len(got), len(c.want))
		}
	}
}

func bytesOf(events []domain.Event) (bytes int) {
	for i := range events {
		bytes += events[i].Bytes()
	}
	return bytes
}
