package eventlog_test

import (
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestAppendAnswersWhereEventsAre(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 2))
	a := domain.Append{Streams: []domain.StreamAppend{
		tablestest.Counted("order-2", domain.None, 3).Streams[0],
		tablestest.Counted("order-1", 2, 1).Streams[0],
		tablestest.Counted("invoice-1", domain.Any, 2).Streams[0],
	}}
	got := tablestest.Append(t, s, tenant, a)
	if got.Position != 8 || got.Duplicate {
		t.Errorf("the answer is %+v", got)
	}
	events := tablestest.WholeLog(t, s, tenant)
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
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 2))
	a := tablestest.WithIDs(domain.Append{Streams: []domain.StreamAppend{
		tablestest.Counted("order-1", 2, 2).Streams[0],
		tablestest.Counted("order-2", domain.Any, 1).Streams[0],
		tablestest.Counted("order-1", domain.Any, 1).Streams[0],
		tablestest.Counted("order-2", domain.Any, 2).Streams[0],
		tablestest.Counted("order-1", domain.Any, 1).Streams[0],
	}})
	stale := tablestest.WithIDs(domain.Append{Streams: []domain.StreamAppend{tablestest.Counted("order-1", 1, 1).Streams[0], tablestest.Counted("order-1", domain.Any, 1).Streams[0]}})
	_, err := s.Append(t.Context(), tenant, stale)
	tablestest.Problem(t, err, domain.CodeVersionConflict)
	for _, c := range []struct {
		of        *tables.Tables
		duplicate bool
	}{{s, false}, {s, true}, {tablestest.OpenAgain(t, db), true}} {
		got := tablestest.Append(t, c.of, tenant, a)
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
	tablestest.Append(t, s, tenant, domain.Append{Streams: []domain.StreamAppend{tablestest.Counted("order-1", 6, 1).Streams[0], tablestest.Counted("order-2", 3, 1).Streams[0]}})
	if events := tablestest.WholeLog(t, s, tenant); len(events) != 11 {
		t.Errorf("there are %d events", len(events))
	}
}

// The clock of the database stops or goes back: recorded time does not.
func TestRecordedTimeNeverRunsBackwards(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 1))
	later := time.Now().Add(time.Hour).Truncate(time.Microsecond).UTC()
	_, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), "update manifold.logs set last_at = $2 where tenant_id = $1", [16]byte(tenant), later)
	tablestest.Must(t, err)
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", 1, 1))
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", 2, 2))
	events := tablestest.WholeLog(t, s, tenant)
	for _, e := range events[1:] {
		if e.RecordedAt != later {
			t.Errorf("position %d was recorded at %s, want %s", e.Position, e.RecordedAt, later)
		}
	}
}
