package aggregate

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

func upcast(t *testing.T, s *watched, owner domain.TenantID, eventType string, version int64, expression string) {
	t.Helper()
	_, _, err := s.Tables.PutUpcaster(t.Context(), domain.Upcaster{
		Owner: owner, Type: eventType, Version: version, Expression: expression, By: "test",
	})
	must(t, err)
}

// An upcaster applies from the next load. Snapshots that were folded without it are no longer used, except those of
// categories that it does not affect.
func TestUpcastersAndSnapshots(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	must(t, states.Put(t.Context(), tenant, adding("sum")))
	other := adding("other")
	other.On = map[string]string{"Else": "state"}
	must(t, states.Put(t.Context(), tenant, other))
	add(t, s, states, tenant, "sum-1", 1, 20)
	add(t, s, states, tenant, "other-1", 1, 20)
	load := func(stream string, snapshot, version int64, want string) {
		t.Helper()
		state, err := states.Load(t.Context(), tenant, stream, At{})
		must(t, err)
		wantState(t, state, version, want)
		if state.Snapshot != snapshot {
			t.Errorf("it is folded on from version %d; want %d", state.Snapshot, snapshot)
		}
	}
	take := func(stream string) {
		t.Helper()
		_, err := states.TakeSnapshot(t.Context(), tenant, stream, false)
		must(t, err)
	}
	take("sum-1")
	take("other-1")
	load("sum-1", 20, 20, sumTo(20))

	upcast(t, s, tenant, "Unheard", 1, `null`)
	load("sum-1", 20, 20, sumTo(20))
	upcast(t, s, domain.Everyone, "Added", 1, `{"n": 0}`)
	load("sum-1", 0, 20, `{"count":20,"sum":0}`)
	load("other-1", 20, 20, `{"count":0,"sum":0}`)
	take("sum-1")
	load("sum-1", 20, 20, `{"count":20,"sum":0}`)
	upcast(t, s, tenant, "Added", 1, `{"n": 1}`)
	load("sum-1", 0, 20, `{"count":20,"sum":20}`)
	upcast(t, s, tenant, "Added", 2, `{"n": event.data.n * event.metadata.schemaVersion}`)
	load("sum-1", 0, 20, `{"count":20,"sum":40}`)
	take("sum-1")
	must(t, s.DeleteUpcaster(t.Context(), tenant, "Added", 1))
	load("sum-1", 0, 20, `{"count":20,"sum":0}`) // the shared first step, and the tenant's own second one
}

func TestAnUpcasterThatFailsNamesItself(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	must(t, states.Put(t.Context(), tenant, adding("sum")))
	add(t, s, states, tenant, "sum-1", 1, 3)
	upcast(t, s, tenant, "Added", 1, `{"n": event.data.nope}`)
	_, err := states.Load(t.Context(), tenant, "sum-1", At{})
	problem, ok := errors.AsType[*domain.Error](err)
	if !ok || problem.Code != domain.CodeFaulted || problem.Where != "upcaster Added/1" {
		t.Fatalf("it gives %v", err)
	}
	events, err := s.Tables.ReadStream(t.Context(), tenant, "sum-1", domain.StreamQuery{From: 1, Limit: 1})
	must(t, err)
	if string(events[0].Data) != `{"n": 1}` {
		t.Errorf("the log has %s", events[0].Data)
	}
}

func TestSnapshotsAreRenewed(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, true)
	definition := adding("sum")
	definition.SnapshotEvery = 1000 // so that none is due by itself
	must(t, states.Put(t.Context(), tenant, definition))
	waitForRenewals(t, states) // Put's own, which would take a snapshot of these events as well
	add(t, s, states, tenant, "sum-1", 1, 20)
	_, err := states.TakeSnapshot(t.Context(), tenant, "sum-1", false)
	must(t, err)
	old := waitFor(t, s, "sum-1")
	upcast(t, s, tenant, "Added", 1, `{"n": 1}`)
	states.Renew(tenant, "sum")
	renewed := waitFor(t, s, "sum-1")
	if renewed.Tag == old.Tag || renewed.Version != 20 || !equalJSON(t, renewed.State, `{"count":20,"sum":20}`) {
		t.Errorf("renewed, the snapshot is %s at %d", renewed.State, renewed.Version)
	}
}

func equalJSON(t *testing.T, got json.RawMessage, want string) bool {
	t.Helper()
	var a, b map[string]float64
	must(t, json.Unmarshal(got, &a))
	must(t, json.Unmarshal([]byte(want), &b))
	return a["count"] == b["count"] && a["sum"] == b["sum"] && len(a) == len(b)
}
