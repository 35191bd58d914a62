package aggregate

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

// If events were removed, a state is right or refused, whatever snapshots exist. A client that accepts the loss gets
// the fold of the remaining events, with a report of what is missing.
func TestStatesAfterRemovedEvents(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	must(t, states.Put(t.Context(), tenant, adding("sum")))
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		stream := fmt.Sprintf("sum-%d", n)
		head, err := s.Head(t.Context(), tenant)
		must(rt, err)
		events := rapid.IntRange(1, 12).Draw(rt, "events")
		add(rt, s, states, tenant, stream, 1, events)
		var snapshot int64 // a good one
		if rapid.Bool().Draw(rt, "snapshot") {
			kept, err := states.TakeSnapshot(t.Context(), tenant, stream, false)
			must(rt, err)
			snapshot = kept.Version
			more := rapid.IntRange(0, 6).Draw(rt, "more")
			add(rt, s, states, tenant, stream, events+1, events+more)
			events += more
		}
		upTo := rapid.IntRange(0, events).Draw(rt, "removed up to")
		left := map[int64]bool{}
		var keep []int64
		for v := range int64(events) {
			left[v+1] = v+1 > int64(upTo) || rapid.IntRange(0, 3).Draw(rt, "keep") == 0
			if left[v+1] {
				keep = append(keep, head.Position+v+1)
			}
		}
		s.db.Remove(t, tenant, "sum", head.Position+int64(upTo), keep...)
		version := rapid.Int64Range(0, int64(events)).Draw(rt, "version")
		newest := version
		if version == 0 {
			newest = int64(events)
		}
		begun, sum, count := int64(0), int64(0), int64(0)
		if snapshot > 0 && snapshot <= newest {
			begun, count, sum = snapshot, snapshot, snapshot*(snapshot+1)/2
		}
		missing := int64(0)
		for v := begun + 1; v <= newest; v++ {
			if !left[v] {
				missing = v
				continue
			}
			count, sum = count+1, sum+v
		}
		want := fmt.Sprintf(`{"count":%d,"sum":%d}`, count, sum)
		state, err := states.Load(t.Context(), tenant, stream, At{Version: version})
		switch {
		case missing > 0 && code(err) != domain.CodeEventsRemoved:
			rt.Fatalf("event %d is missing, and it says %+v, %v", missing, state, err)
		case missing == 0 && (err != nil || string(state.Data) != want || state.Version != newest || state.RemovedTo != 0):
			rt.Fatalf("it says %s, %+v, %v; want %s", state.Data, state, err, want)
		}
		state, err = states.Load(t.Context(), tenant, stream, At{Version: version, AcceptLoss: true})
		if err != nil || string(state.Data) != want || state.Version != newest || state.RemovedTo != missing {
			rt.Fatalf("with a loss accepted it says %s, %+v, %v; want %s at %d, and %d missing", state.Data, state, err, want, newest, missing)
		}
		state, err = states.Load(t.Context(), tenant, stream, At{})
		cold, coldErr := coldState(rt, s, tenant, stream)
		if code(err) != code(coldErr) || err == nil && (cold.Version != state.Version || string(cold.Data) != string(state.Data)) {
			rt.Fatalf("a command is decided on %+v, %v; the state is %+v, %v", cold, coldErr, state, err)
		}
		// A snapshot of such a state says so, and is for nobody else.
		if version == 0 && missing > 0 {
			kept, err := states.TakeSnapshot(t.Context(), tenant, stream, true)
			if err != nil || kept.RemovedTo != missing {
				rt.Fatalf("a snapshot of it: %+v, %v", kept, err)
			}
			add(rt, s, states, tenant, stream, events+1, events+1)
			if _, err := states.Load(t.Context(), tenant, stream, At{}); code(err) != domain.CodeEventsRemoved {
				rt.Fatalf("a state with a loss is given to somebody who did not accept it: %v", err)
			}
			state, err := states.Load(t.Context(), tenant, stream, At{AcceptLoss: true})
			if err != nil || state.RemovedTo != missing || state.Snapshot != kept.Version || state.EventsRead != 1 || state.Version != int64(events)+1 {
				rt.Fatalf("from the snapshot: %+v, %v", state, err)
			}
		}
	})
}

// A stream without remaining events still has its version: a client's snapshot may cover all of it.
func TestClientSnapshotsAfterRemovedEvents(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	must(t, states.Put(t.Context(), tenant, adding("sum")))
	add(t, s, states, tenant, "sum-1", 1, 5)
	s.db.Remove(t, tenant, "sum", 5)
	if _, err := states.PutSnapshot(t.Context(), tenant, Snapshot{Stream: "sum-1", Version: 6, Tag: "mine", State: json.RawMessage(`1`)}); code(err) != domain.CodeVersionConflict {
		t.Errorf("a version that the stream never had: %v", err)
	}
	kept, err := states.PutSnapshot(t.Context(), tenant, Snapshot{Stream: "sum-1", Version: 5, Tag: "mine", State: json.RawMessage(`1`)})
	must(t, err)
	if kept.Version != 5 || kept.RemovedTo != 0 {
		t.Errorf("it keeps %+v", kept)
	}
	if _, err := states.Load(t.Context(), tenant, "sum-1", At{Time: time.Now()}); code(err) != domain.CodeEventsRemoved {
		t.Errorf("while its version is unknown: %v", err)
	}
	if _, err := states.Load(t.Context(), tenant, "sum-2", At{Time: time.Now()}); code(err) != domain.CodeNotFound {
		t.Errorf("a stream that never was: %v", err)
	}
}
