package eventlog_test

import (
	"cmp"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestReadPositions(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 6))
	log := tablestest.WholeLog(t, s, tenant)
	_, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), "delete from manifold.events where tenant_id = $1 and position = 3", tenant)
	tablestest.Must(t, err)
	got, err := s.ReadPositions(t.Context(), tenant, []int64{5, 3, 99, 2, 0, 6})
	tablestest.Must(t, err)
	want := []domain.Event{log[4], log[1], log[5]}
	if len(got) != len(want) {
		t.Fatalf("read %d events, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i].ID != want[i].ID || got[i].Position != want[i].Position || string(got[i].Data) != string(want[i].Data) {
			t.Errorf("event %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	if got, err := s.ReadPositions(t.Context(), tenant, nil); err != nil || got != nil {
		t.Errorf("of no positions %+v, %v", got, err)
	}
	headers, err := s.ReadHeaders(t.Context(), tenant, []int64{5, 3, 99, 2, 0, 6})
	tablestest.Must(t, err)
	slices.SortFunc(headers, func(a, b domain.Event) int { return cmp.Compare(a.Position, b.Position) })
	var wanted []domain.Event
	for _, e := range []domain.Event{log[1], log[4], log[5]} {
		wanted = append(wanted, domain.Event{Position: e.Position, ID: e.ID, Stream: e.Stream, Version: e.Version, Type: e.Type})
	}
	if !reflect.DeepEqual(headers, wanted) {
		t.Errorf("the headers are %+v, want %+v", headers, wanted)
	}
}

func TestEventPosition(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 4))
	for _, e := range tablestest.WholeLog(t, s, tenant) {
		if at, err := s.EventPosition(t.Context(), tenant, e.ID); err != nil || at != e.Position {
			t.Errorf("event %s is at %d, %v; want %d", e.ID, at, err, e.Position)
		}
	}
	_, err := s.EventPosition(t.Context(), tenant, domain.NewEventID())
	tablestest.WantCode(t, err, domain.CodeNotFound)
}

// Places in streams, against what the log as a whole says; also where retention has removed events.
func TestPlacesInStreams(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	streams := []string{"order-1", "order-2", "order-3", "order-none"}
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		tenant := domain.NewTenantID()
		for _, stream := range rapid.SliceOfN(rapid.SampledFrom(streams[:3]), 1, 12).Draw(rt, "streams") {
			if _, err := s.Append(ctx, tenant, tablestest.Counted(stream, domain.Any, rapid.IntRange(1, 3).Draw(rt, "events"))); err != nil {
				rt.Fatal(err)
			}
		}
		head, err := s.Head(ctx, tenant)
		if err != nil {
			rt.Fatal(err)
		}
		removed := rapid.SliceOfN(rapid.Int64Range(1, head.Position), 0, 3).Draw(rt, "removed")
		if _, err := super.Exec(ctx, "delete from manifold.events where tenant_id = $1 and position = any($2)", tenant, removed); err != nil {
			rt.Fatal(err)
		}
		log, err := s.ReadLog(ctx, tenant, domain.LogQuery{Limit: 1000})
		if err != nil {
			rt.Fatal(err)
		}
		upTo, limit := rapid.Int64Range(0, head.Position+1).Draw(rt, "up to"), rapid.IntRange(1, 4).Draw(rt, "limit")
		var places []domain.StreamPlace
		var want []int64
		for _, stream := range streams {
			position := rapid.Int64Range(0, head.Position+2).Draw(rt, "position")
			version, err := s.VersionBefore(ctx, tenant, stream, position)
			if err != nil {
				rt.Fatal(err)
			}
			n := 0
			for _, e := range log {
				if e.Stream != stream {
					continue
				}
				if e.Position < position != (e.Version <= version) {
					rt.Fatalf("before position %d stream %s had version %d, but version %d is at %d", position, stream, version, e.Version, e.Position)
				}
				if e.Version > version && n < limit {
					if n++; e.Position <= upTo {
						want = append(want, e.Position)
					}
				}
			}
			places = append(places, domain.StreamPlace{Stream: stream, Version: version})
		}
		events, err := s.NextInStreams(ctx, tenant, places, upTo, limit)
		if err != nil {
			rt.Fatal(err)
		}
		var got []int64
		for _, e := range events {
			got = append(got, e.Position)
		}
		if len(got) != len(want) {
			rt.Fatalf("read %v, want %v", got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				rt.Fatalf("read %v, want %v", got, want)
			}
		}
	})
}
