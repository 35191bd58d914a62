package eventlog_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// mixedLog appends events of several categories and types.
func mixedLog(t *testing.T, s *tables.Tables, tenant domain.TenantID, requests int) []domain.Event {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	for range requests {
		stream := fmt.Sprintf("%s-%d", []string{"order", "order", "order", "invoice", "user"}[random.IntN(5)], random.IntN(6))
		a := tablestest.Counted(stream, domain.Any, 1+random.IntN(5))
		for i := range a.Streams[0].Events {
			e := &a.Streams[0].Events[i]
			e.Type = []string{"Added", "Added", "Removed", "Rare"}[random.IntN(4)]
			e.Data = json.RawMessage(`{"text": "` + strings.Repeat("x", random.IntN(300)) + `"}`)
			if random.IntN(2) == 0 {
				e.Metadata = json.RawMessage(`{"by": "me"}`)
				e.OccurredAt = time.Date(2024, 2, 29, 12, 30, 15, 123456000, time.UTC)
			}
		}
		tablestest.Append(t, s, tenant, a)
	}
	return tablestest.WholeLog(t, s, tenant)
}

func TestEventsAreReadAsAppended(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	a := tablestest.WithIDs(tablestest.Counted("order-1", domain.None, 3))
	events := a.Streams[0].Events
	events[0].Data, events[0].Metadata = json.RawMessage(`{"b":1,"a":[1.50,"ü\n"]}`), json.RawMessage(`null`)
	events[1].Data, events[1].OccurredAt = json.RawMessage(`7`), time.Date(1969, 12, 31, 23, 59, 59, 999999000, time.FixedZone("", 3600))
	before := time.Now().Add(-time.Minute)
	tablestest.Append(t, s, tenant, a)
	got := tablestest.WholeLog(t, s, tenant)
	for i, want := range []struct {
		data, metadata string
		at             time.Time
	}{
		{`{"a": [1.50, "ü\n"], "b": 1}`, "null", time.Time{}},
		{`7`, "", events[1].OccurredAt.UTC()},
		{`{"n": 3}`, "", time.Time{}},
	} {
		e := got[i]
		if string(e.Data) != want.data || string(e.Metadata) != want.metadata || (e.Metadata == nil) != (want.metadata == "") {
			t.Errorf("event %d has data %s and metadata %s", i, e.Data, e.Metadata)
		}
		if !e.OccurredAt.Equal(want.at) || e.OccurredAt.IsZero() != want.at.IsZero() {
			t.Errorf("event %d occurred at %s, want %s", i, e.OccurredAt, want.at)
		}
		if e.ID != events[i].ID || e.Type != "Counted" || e.Stream != "order-1" {
			t.Errorf("event %d is %+v", i, e)
		}
		if e.RecordedAt.Before(before) || e.RecordedAt.After(time.Now().Add(time.Minute)) {
			t.Errorf("event %d was recorded at %s", i, e.RecordedAt)
		}
	}
}

// Every query gives what a filter over the whole log gives.
func TestQueriesAgainstAFilter(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	log := mixedLog(t, s, tenant, 150)
	rapid.Check(t, func(t *rapid.T) {
		q := domain.LogQuery{
			From:       rapid.Int64Range(0, int64(len(log)+3)).Draw(t, "from"),
			Limit:      rapid.IntRange(1, len(log)+10).Draw(t, "limit"),
			Categories: rapid.SliceOfN(rapid.SampledFrom([]string{"order", "invoice", "user", "none"}), 0, 3).Draw(t, "categories"),
			Types:      rapid.SliceOfN(rapid.SampledFrom([]string{"Added", "Removed", "Rare", "None"}), 0, 2).Draw(t, "types"),
			Direction:  rapid.SampledFrom([]domain.Direction{domain.Forward, domain.Backward}).Draw(t, "direction"),
			MaxBytes:   rapid.SampledFrom([]int{0, 0, 1, 1000, 20_000}).Draw(t, "maxBytes"),
		}
		if q.Direction == domain.Forward {
			q.To = rapid.Int64Range(0, int64(len(log)+3)).Draw(t, "to")
		}
		got, err := s.ReadLog(t.Context(), tenant, q)
		if err != nil {
			t.Fatal(err)
		}
		var want []domain.Event
		bytes := 0
		for _, e := range inDirection(log, q.Direction) {
			out := q.From > 0 && (q.Direction == domain.Forward && e.Position < q.From || q.Direction == domain.Backward && e.Position > q.From)
			out = out || q.To > 0 && e.Position > q.To
			out = out || len(q.Categories) > 0 && !slices.Contains(q.Categories, domain.Category(e.Stream))
			out = out || len(q.Types) > 0 && !slices.Contains(q.Types, e.Type)
			if out || len(want) == q.Limit || q.MaxBytes > 0 && bytes >= q.MaxBytes {
				continue
			}
			want = append(want, e)
			bytes += len(e.Data) + len(e.Metadata)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v gives %d events, want %d", q, len(got), len(want))
		}
		source := domain.Source{Categories: q.Categories}
		after, upTo := max(0, q.From-1), max(q.To, q.From)
		count := int64(0)
		for _, e := range log {
			if e.Position > after && e.Position <= upTo && (len(q.Categories) == 0 || slices.Contains(q.Categories, domain.Category(e.Stream))) &&
				(len(q.Types) == 0 || slices.Contains(q.Types, e.Type)) {
				count++
			}
		}
		counted, err := s.CountEvents(t.Context(), tenant, source, q.Types, after, upTo)
		if err != nil || counted != count {
			t.Fatalf("CountEvents(%v, %v, %d, %d) = %d, %v; want %d", source, q.Types, after, upTo, counted, err, count)
		}
		there, err := s.AnyEvent(t.Context(), tenant, source, q.Types, after, upTo)
		if err != nil || there != (count > 0) {
			t.Fatalf("AnyEvent(%v, %v, %d, %d) = %v, %v; there are %d", source, q.Types, after, upTo, there, err, count)
		}
	})
}

// Reading by stream, page by page, gives the matching events in the order of streams, each once.
func TestReadByStreamAgainstAFilter(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	mixedLog(t, s, tenant, 150)
	for _, stream := range []string{"order", "order!-1", "order.-1", "orders-1"} { // beside the category's end
		tablestest.AppendTo(t, s, tenant, stream, "Added", `{}`, `{}`)
	}
	log := tablestest.WholeLog(t, s, tenant)
	rapid.Check(t, func(t *rapid.T) {
		q := domain.ByStreamQuery{
			Category: rapid.SampledFrom([]string{"", "order", "order!", "invoice", "none"}).Draw(t, "category"),
			Types:    rapid.SliceOfN(rapid.SampledFrom([]string{"Added", "Removed", "Rare", "None"}), 0, 2).Draw(t, "types"),
			To:       rapid.Int64Range(0, int64(len(log))).Draw(t, "to"),
			Limit:    rapid.IntRange(1, len(log)).Draw(t, "limit"),
			MaxBytes: rapid.SampledFrom([]int{0, 1, 1000, 20_000}).Draw(t, "maxBytes"),
		}
		var got []domain.Event
		for {
			page, err := s.ReadByStream(t.Context(), tenant, q)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			if len(page) > q.Limit {
				t.Fatalf("a page has %d events, and the limit is %d", len(page), q.Limit)
			}
			got = append(got, page...)
			q.AfterStream, q.AfterVersion = page[len(page)-1].Stream, page[len(page)-1].Version
		}
		var want []domain.Event
		for _, e := range log {
			if e.Position <= q.To && (q.Category == "" || domain.Category(e.Stream) == q.Category) && (len(q.Types) == 0 || slices.Contains(q.Types, e.Type)) {
				want = append(want, e)
			}
		}
		slices.SortFunc(want, func(a, b domain.Event) int {
			return cmp.Or(strings.Compare(a.Stream, b.Stream), cmp.Compare(a.Version, b.Version))
		})
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v gives %d events, want %d", q, len(got), len(want))
		}
	})
}

// The log fits into the cache if PostgreSQL is configured with a cache of its size.
func TestFitsInCache(t *testing.T) {
	t.Parallel()
	for size, want := range map[string]bool{"1GB": true, "64kB": false} {
		db := pgtest.Database(t)
		super := db.Pool(t, pgtest.RoleSuperuser, 1)
		if _, err := super.Exec(t.Context(), "alter role manifold_app in database "+super.Config().ConnConfig.Database+" set effective_cache_size = '"+size+"'"); err != nil {
			t.Fatal(err)
		}
		s := tablestest.OpenAgain(t, db)
		tenant := domain.NewTenantID()
		mixedLog(t, s, tenant, 500)
		if fits, err := s.FitsInCache(t.Context(), tenant); err != nil || fits != want {
			t.Errorf("with a cache of %s: %t, %v", size, fits, err)
		}
	}
}

func inDirection(events []domain.Event, direction domain.Direction) []domain.Event {
	events = slices.Clone(events)
	if direction == domain.Backward {
		slices.Reverse(events)
	}
	return events
}

func TestStreamQueries(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	log := mixedLog(t, s, tenant, 60)
	var stream []domain.Event
	for _, e := range log {
		if e.Stream == "order-1" {
			stream = append(stream, e)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		q := domain.StreamQuery{
			From:      rapid.Int64Range(0, int64(len(stream)+2)).Draw(t, "from"),
			Limit:     rapid.IntRange(1, len(stream)+2).Draw(t, "limit"),
			Direction: rapid.SampledFrom([]domain.Direction{domain.Forward, domain.Backward}).Draw(t, "direction"),
		}
		if q.Direction == domain.Forward {
			q.To = rapid.Int64Range(0, int64(len(stream)+2)).Draw(t, "to")
		}
		var want []domain.Event
		for _, e := range inDirection(stream, q.Direction) {
			out := q.From > 0 && (q.Direction == domain.Forward && e.Version < q.From || q.Direction == domain.Backward && e.Version > q.From)
			if !out && (q.To == 0 || e.Version <= q.To) && len(want) < q.Limit {
				want = append(want, e)
			}
		}
		got, err := s.ReadStream(t.Context(), tenant, "order-1", q)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v gives %d events, %v; want %d", q, len(got), err, len(want))
		}
	})
}

// A slice that is bounded by bytes does not read much more than it gives.
func TestLargeEventsEndASlice(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	large := `"` + string(make1MiB()) + `"`
	for range 10 {
		a := tablestest.Counted("order-1", domain.Any, 4)
		for i := range a.Streams[0].Events {
			a.Streams[0].Events[i].Data = json.RawMessage(large)
		}
		tablestest.Append(t, s, tenant, a)
	}
	for from := int64(1); from <= 40; from += 2 {
		events, err := s.ReadLog(t.Context(), tenant, domain.LogQuery{From: from, Limit: 1000, MaxBytes: 3 << 19})
		if err != nil || len(events) != min(2, int(41-from)) || events[0].Position != from {
			t.Fatalf("from %d: %d events, %v", from, len(events), err)
		}
	}
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", 40, 1))
}

// A read takes memory for the events that it finds, however many it may return.
func TestMemoryOfReadsDoesNotDependOnTheLimit(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	const count = 1200
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, count/2))
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, count/2))
	one := pg.Query{Statement: &pg.Statement{Name: "one", SQL: "select 1"}, Row: func([][]byte) error { return nil }}
	for _, maxBytes := range []int{0, 64 << 20} {
		q := domain.LogQuery{Limit: 1 << 20, MaxBytes: maxBytes}
		events, err := s.ReadLog(t.Context(), tenant, q)
		if err != nil || len(events) != count || cap(events) > 4*count {
			t.Errorf("with at most %d bytes: %d events, room for %d, %v", maxBytes, len(events), cap(events), err)
		}
		reading, err := s.ReadWith(t.Context(), tenant, q, func() {}, one)
		if found := reading.Events; err != nil || len(found) != count || cap(found) > 4*count {
			t.Errorf("with a reading of at most %d bytes: %d events, room for %d, %v", maxBytes, len(found), cap(found), err)
		}
	}
}

func TestReadFor(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	log := mixedLog(t, s, tenant, 40)
	own := domain.ProjectionID{Owner: tenant, Name: "orders"}
	shared := domain.ProjectionID{Owner: domain.Everyone, Name: "orders"}
	others := domain.ProjectionID{Owner: domain.NewTenantID(), Name: "orders"}
	builds := make(map[domain.ProjectionID]int64)
	for _, id := range []domain.ProjectionID{own, shared, others} {
		build, err := s.NextBuild(t.Context(), id.Owner)
		tablestest.Must(t, err)
		for range len(builds) { // so that they differ
			build, err = s.NextBuild(t.Context(), id.Owner)
			tablestest.Must(t, err)
		}
		tablestest.Must(t, s.CreateProjection(t.Context(), domain.Projection{ProjectionID: id, Build: build, Definition: domain.Definition{Name: id.Name}}, "test"))
		builds[id] = build
	}
	for _, id := range []domain.ProjectionID{own, shared} {
		got, err := s.ReadFor(t.Context(), tenant, id, domain.LogQuery{From: 3, Limit: 1000})
		tablestest.Must(t, err)
		if got.Head != int64(len(log)) || !got.Found || got.Held || got.Build != builds[id] || !reflect.DeepEqual(got.Events, log[2:]) {
			t.Errorf("%+v is read with head %d, build %d, %d events", id, got.Head, got.Build, len(got.Events))
		}
	}
	for _, id := range []domain.ProjectionID{others, {Owner: tenant, Name: "none"}} {
		if got, err := s.ReadFor(t.Context(), tenant, id, domain.LogQuery{From: 1, Limit: 1}); err != nil || got.Found {
			t.Errorf("%+v is found: %+v, %v", id, got, err)
		}
	}
	// A reader that is cut short by bytes must not take it that it has seen everything up to the head.
	got, err := s.ReadFor(t.Context(), tenant, own, domain.LogQuery{From: 1, Limit: 1000, MaxBytes: 1000, Categories: []string{"order"}})
	tablestest.Must(t, err)
	if last := got.Events[len(got.Events)-1]; len(got.Events) >= 50 || got.Head != last.Position {
		t.Errorf("cut short behind position %d, %d events are read, and the head is said to be %d", last.Position, len(got.Events), got.Head)
	}
}

func TestStreams(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	all := []string{"a-1", "a-1~", "a-10", "a-2", "a.b-1", "aa-1", "b-1", "b-~", "b-~~", "Z-1"}
	for _, stream := range all {
		tablestest.Append(t, s, tenant, tablestest.Counted(stream, domain.Any, 3))
	}
	slices.Sort(all)
	for _, category := range []string{"", "a", "b", "a.b", "none"} {
		for _, prefix := range []string{"", "a", "a-", "a-1", "a-10", "b-~", "a.", "~", "ü", "\x00"} {
			var want []string
			for _, stream := range all {
				if (category == "" || domain.Category(stream) == category) && strings.HasPrefix(stream, prefix) {
					want = append(want, stream)
				}
			}
			var got []string
			for after := ""; ; {
				page, err := s.Streams(t.Context(), tenant, category, prefix, after, 2)
				tablestest.Must(t, err)
				got = append(got, page...)
				if len(page) < 2 {
					break
				}
				after = page[1]
			}
			if !slices.Equal(got, want) {
				t.Errorf("category %q, prefix %q: %v, want %v", category, prefix, got, want)
			}
		}
	}
	if _, err := s.Streams(t.Context(), tenant, "", "", "\x00\xff", 1); err != nil {
		t.Errorf("after nonsense: %v", err)
	}
}

func TestStreamInfo(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	log := mixedLog(t, s, tenant, 40)
	want := domain.StreamInfo{Stream: "order-1", FirstVersion: 1}
	for _, e := range log {
		if e.Stream == "order-1" {
			want.Version, want.Events, want.LastAt = e.Version, want.Events+1, e.RecordedAt
			want.Bytes += int64(len(e.Data) + len(e.Metadata))
			if want.FirstAt.IsZero() {
				want.FirstAt = e.RecordedAt
			}
		}
	}
	if got, err := s.StreamInfo(t.Context(), tenant, "order-1"); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	_, err := s.StreamInfo(t.Context(), tenant, "order-none")
	tablestest.Problem(t, err, domain.CodeNotFound)
}

func TestThePast(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	log := mixedLog(t, s, tenant, 60)
	// Retention removes some in the middle, and the newest of all.
	pool := db.Pool(t, pgtest.RoleSuperuser, 1)
	_, err := pool.Exec(t.Context(), "delete from manifold.events where tenant_id = $1 and (position between 20 and 60 or position > $2)", [16]byte(tenant), len(log)-3)
	tablestest.Must(t, err)
	left := slices.DeleteFunc(slices.Clone(log), func(e domain.Event) bool {
		return e.Position >= 20 && e.Position <= 60 || e.Position > int64(len(log)-3)
	})
	for _, at := range log {
		var older, newer int64 = 0, int64(len(log)) // what must be counted in, what must not
		var version, after int64
		for _, e := range left {
			if !e.RecordedAt.After(at.RecordedAt) {
				older = e.Position
				if e.Stream == at.Stream {
					version = e.Version
				}
			} else {
				newer = min(newer, e.Position-1)
				if e.Stream == at.Stream && after == 0 {
					after = e.Version
				}
			}
		}
		got, err := s.PositionAt(t.Context(), tenant, at.RecordedAt)
		if err != nil || got < older || got > newer {
			t.Errorf("position at %d's time: %d, %v; want %d to %d", at.Position, got, err, older, newer)
		}
		got, err = s.VersionAt(t.Context(), tenant, at.Stream, at.RecordedAt)
		if err != nil || got < version || after > 0 && got >= after {
			t.Errorf("version at %d's time: %d, %v; want %d, below %d", at.Position, got, err, version, after)
		}
	}
	for at, want := range map[time.Time]int64{log[0].RecordedAt.Add(-time.Microsecond): 0, time.Now().Add(time.Hour): int64(len(log))} {
		if got, err := s.PositionAt(t.Context(), tenant, at); err != nil || got != want {
			t.Errorf("position at %s: %d, %v; want %d", at, got, err, want)
		}
	}
	if got, err := s.PositionAt(t.Context(), domain.NewTenantID(), time.Now()); err != nil || got != 0 {
		t.Errorf("in no log: %d, %v", got, err)
	}
}
