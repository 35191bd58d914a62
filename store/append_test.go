package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/store"
)

// to is a request with n events for one stream.
func to(stream string, expected domain.Expected, n int) domain.Append {
	events := make([]domain.NewEvent, n)
	for i := range events {
		events[i] = domain.NewEvent{Type: "Counted", Data: json.RawMessage(fmt.Sprintf(`{"n": %d}`, i+1))}
	}
	return domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: expected, Events: events}}}
}

// withIDs gives each event of a request a new id.
func withIDs(a domain.Append) domain.Append {
	for _, stream := range a.Streams {
		for i := range stream.Events {
			stream.Events[i].ID = domain.NewEventID()
		}
	}
	return a
}

func mustAppend(t testing.TB, s *store.Store, tenant domain.TenantID, a domain.Append) domain.Appended {
	t.Helper()
	appended, err := s.Append(t.Context(), tenant, a)
	if err != nil {
		t.Fatal(err)
	}
	return appended
}

// problem fails the test unless err has the code, and returns it.
func problem(t testing.TB, err error, code domain.Code) *domain.Error {
	t.Helper()
	e, ok := errors.AsType[*domain.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("got %v, want code %s", err, code)
	}
	return e
}

// wholeLog reads a log from its start, and checks that positions have no gap, versions neither.
func wholeLog(t testing.TB, s *store.Store, tenant domain.TenantID) []domain.Event {
	t.Helper()
	events, err := s.ReadLog(t.Context(), tenant, domain.LogQuery{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	head, err := s.Head(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	if int(head.Position) != len(events) {
		t.Errorf("the head is at %d, and there are %d events", head.Position, len(events))
	}
	ids := make(map[domain.EventID]bool)
	versions := make(map[string]int64)
	for i, e := range events {
		if e.Position != int64(i+1) {
			t.Fatalf("event %d is at position %d", i+1, e.Position)
		}
		if versions[e.Stream]++; e.Version != versions[e.Stream] {
			t.Fatalf("position %d: %s has version %d, want %d", e.Position, e.Stream, e.Version, versions[e.Stream])
		}
		if ids[e.ID] {
			t.Fatalf("position %d: id %s is there twice", e.Position, e.ID)
		}
		ids[e.ID] = true
		if i > 0 && e.RecordedAt.Before(events[i-1].RecordedAt) {
			t.Fatalf("recorded time runs backwards at position %d", e.Position)
		}
	}
	return events
}

func TestAppendAnswersWhereEventsAre(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t)
	tenant := domain.NewTenantID()
	mustAppend(t, s, tenant, to("order-1", domain.None, 2))
	a := domain.Append{Streams: []domain.StreamAppend{
		to("order-2", domain.None, 3).Streams[0],
		to("order-1", 2, 1).Streams[0],
		to("invoice-1", domain.Any, 2).Streams[0],
	}}
	got := mustAppend(t, s, tenant, a)
	if got.Position != 8 || got.Duplicate {
		t.Errorf("the answer is %+v", got)
	}
	events := wholeLog(t, s, tenant)
	n := 2
	for i, stream := range got.Streams {
		if stream.Stream != a.Streams[i].Stream {
			t.Errorf("stream %d of the answer is %s", i, stream.Stream)
		}
		for _, e := range stream.Events {
			if at := events[n]; at.ID != e.ID || at.Position != e.Position || at.Version != e.Version || at.Stream != stream.Stream {
				t.Errorf("answered %+v, and there is %+v", e, at)
			}
			n++
		}
		if last := stream.Events[len(stream.Events)-1].Version; stream.Version != last {
			t.Errorf("stream %s is at %d, and its last event at %d", stream.Stream, stream.Version, last)
		}
	}
	one, err := s.ReadStream(t.Context(), tenant, "order-1", domain.StreamQuery{Limit: 10})
	if err != nil || len(one) != 3 || one[2].Position != 6 {
		t.Errorf("order-1 is read as %+v, %v", one, err)
	}
}

// The order of a log that goes to and fro between streams is kept by one request.
func TestAStreamMayComeAgain(t *testing.T) {
	t.Parallel()
	s, db := openStore(t)
	tenant := domain.NewTenantID()
	mustAppend(t, s, tenant, to("order-1", domain.None, 2))
	a := withIDs(domain.Append{Streams: []domain.StreamAppend{
		to("order-1", 2, 2).Streams[0],
		to("order-2", domain.Any, 1).Streams[0],
		to("order-1", domain.Any, 1).Streams[0],
		to("order-2", domain.Any, 2).Streams[0],
		to("order-1", domain.Any, 1).Streams[0],
	}})
	stale := withIDs(domain.Append{Streams: []domain.StreamAppend{to("order-1", 1, 1).Streams[0], to("order-1", domain.Any, 1).Streams[0]}})
	_, err := s.Append(t.Context(), tenant, stale)
	problem(t, err, domain.CodeVersionConflict)
	for _, c := range []struct {
		of        *store.Store
		duplicate bool
	}{{s, false}, {s, true}, {openAgain(t, db), true}} {
		got := mustAppend(t, c.of, tenant, a)
		if got.Duplicate != c.duplicate || got.Position != 9 {
			t.Errorf("the answer is %+v", got)
		}
		position := int64(2)
		for i, versions := range [][]int64{{3, 4}, {1}, {5}, {2, 3}, {6}} {
			if stream := got.Streams[i]; stream.Stream != a.Streams[i].Stream || stream.Version != versions[len(versions)-1] {
				t.Errorf("stream %d of the answer is %+v", i, stream)
			}
			for j, version := range versions {
				position++
				if e := got.Streams[i].Events[j]; e.Version != version || e.Position != position || e.ID != a.Streams[i].Events[j].ID {
					t.Errorf("event %d of stream %d is answered as %+v, want version %d and position %d", j, i, e, version, position)
				}
			}
		}
	}
	// What the writer remembers of the streams is what they are.
	mustAppend(t, s, tenant, domain.Append{Streams: []domain.StreamAppend{to("order-1", 6, 1).Streams[0], to("order-2", 3, 1).Streams[0]}})
	if events := wholeLog(t, s, tenant); len(events) != 11 {
		t.Errorf("there are %d events", len(events))
	}
}

// The clock of the database stands still or goes back: recorded time does not.
func TestRecordedTimeNeverRunsBackwards(t *testing.T) {
	t.Parallel()
	s, db := openStore(t)
	tenant := domain.NewTenantID()
	mustAppend(t, s, tenant, to("order-1", domain.None, 1))
	later := time.Now().Add(time.Hour).Truncate(time.Microsecond).UTC()
	_, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), "update manifold.logs set last_at = $2 where tenant_id = $1", [16]byte(tenant), later)
	must(t, err)
	mustAppend(t, s, tenant, to("order-1", 1, 1))
	mustAppend(t, s, tenant, to("order-1", 2, 2))
	events := wholeLog(t, s, tenant)
	for _, e := range events[1:] {
		if e.RecordedAt != later {
			t.Errorf("position %d was recorded at %s, want %s", e.Position, e.RecordedAt, later)
		}
	}
}
