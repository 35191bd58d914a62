package aggregate

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

func TestNextRung(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ last, rung, every, want int64 }{
		{0, 400, 100, 500}, {1, 400, 100, 500}, {350, 400, 100, 500}, {400, 400, 100, 500}, {401, 400, 100, 900}, {500, 400, 100, 900},
		{0, 400, 10, 410}, {900, 400, 300, 1500}, {0, 400, 1000, 1000}, {1000, 400, 1000, 2000}, {500, 800, 100, 900}, {9_700, 400, 100, 10_100},
	} {
		if got := nextRung(c.last, c.rung, c.every); got != c.want {
			t.Errorf("after %d, with rungs of %d versions and snapshots every %d, the next one is %d, want %d", c.last, c.rung, c.every, got, c.want)
		}
	}
}

// versionsOf returns the versions of a stream's snapshots, the oldest first.
func versionsOf(t *testing.T, states *States, tenant domain.TenantID, stream string) []int64 {
	t.Helper()
	var versions []int64
	snapshots, err := states.Snapshots(t.Context(), tenant, stream, SnapshotKey{}, 1000)
	must(t, err)
	for _, snapshot := range slices.Backward(snapshots) {
		versions = append(versions, snapshot.Version)
	}
	return versions
}

// rungsTo returns the versions of the snapshots of a stream that was folded at once, every 400 versions from the 500th,
// and of its newest event.
func rungsTo(newest int64) []int64 {
	var versions []int64
	for version := int64(500); version < newest; version += 400 {
		versions = append(versions, version)
	}
	return append(versions, newest)
}

// Any version of a stream that is folded at once is a few hundred events from a snapshot: one that was imported before
// its category got a definition, and again after the definition changes.
func TestAStreamFoldedAtOnceHasSnapshotsNearAnyVersion(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	add(t, s, states, tenant, "sum-1", 1, 10_000)
	definition := adding("sum")
	for _, minus := range []bool{false, true} {
		if minus {
			definition.On["Added"] = `{"sum": state.sum - event.data.n, "count": state.count + 1}`
		}
		must(t, states.Put(t.Context(), tenant, definition))
		taken, err := states.Sweep(t.Context())
		must(t, err)
		if got := versionsOf(t, states, tenant, "sum-1"); taken != 1 || !slices.Equal(got, rungsTo(10_000)) {
			t.Fatalf("%d streams were folded; the snapshots are at %d", taken, got)
		}
		for _, version := range []int{1, 499, 2_500, 5_000, 9_999} {
			got, err := states.Load(t.Context(), tenant, "sum-1", At{Version: int64(version)})
			must(t, err)
			sum := version * (version + 1) / 2
			if minus {
				sum = -sum
			}
			wantState(t, got, int64(version), fmt.Sprintf(`{"count":%d,"sum":%d}`, version, sum))
			if got.EventsRead > 499 {
				t.Errorf("version %d is %d events from a snapshot", version, got.EventsRead)
			}
		}
	}
}

// A fold that ends early is continued from the last snapshot that it left on its way.
func TestAFoldContinuesFromTheSnapshotsOnItsWay(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	add(t, s, states, tenant, "sum-1", 1, 6_000)
	must(t, states.Put(t.Context(), tenant, adding("sum")))
	super := s.db.Pool(t, pgtest.RoleSuperuser, 1)
	_, err := super.Exec(t.Context(), "alter table manifold.snapshots add constraint early check (version < 4500)")
	must(t, err)
	f, err := states.fold(t.Context(), tenant, "sum")
	must(t, err)
	key := streamKey{tenant, "sum-1"}
	if err := states.takeNewest(t.Context(), key, f); err == nil {
		t.Fatal("no snapshot failed")
	}
	kept := versionsOf(t, states, tenant, "sum-1")
	if len(kept) == 0 {
		t.Fatal("the fold has left no snapshots")
	}
	_, err = super.Exec(t.Context(), "alter table manifold.snapshots drop constraint early")
	must(t, err)
	s.lowest.Store(math.MaxInt64) // not a count of events: a read of the fold before, cancelled, may still be answered
	must(t, states.takeNewest(t.Context(), key, f))
	if from := s.lowest.Load(); from != kept[len(kept)-1]+1 {
		t.Errorf("after a snapshot at %d, events from %d on were read", kept[len(kept)-1], from)
	}
	if got := versionsOf(t, states, tenant, "sum-1"); !slices.Equal(got, rungsTo(6_000)) {
		t.Errorf("the snapshots are at %d", got)
	}
}

// A fold that ends after the definition has changed leaves the snapshots of the new one alone, and the stream is queued
// for a fold with that.
func TestAnOldFoldKeepsNewSnapshots(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	add(t, s, states, tenant, "sum-1", 1, 1_500)
	add(t, s, states, tenant, "sum-2", 1, 100)
	definition := adding("sum")
	must(t, states.Put(t.Context(), tenant, definition))
	old, err := states.fold(t.Context(), tenant, "sum")
	must(t, err)
	definition.On["Added"] = `{"sum": state.sum - event.data.n, "count": state.count + 1}`
	must(t, states.Put(t.Context(), tenant, definition))
	current, err := states.fold(t.Context(), tenant, "sum")
	must(t, err)
	for stream, want := range map[string][]int64{"sum-1": rungsTo(1_500), "sum-2": {100}} {
		key := streamKey{tenant, stream}
		_, err = states.TakeSnapshot(t.Context(), tenant, stream, false)
		must(t, err)
		states.snapshotter.dequeue(key)
		must(t, states.takeNewest(t.Context(), key, old))
		if queued := states.snapshotter.dequeue(key); queued != allVersions {
			t.Errorf("%s is queued for %v", stream, queued)
		}
		snapshots, err := states.Snapshots(t.Context(), tenant, stream, SnapshotKey{}, 100)
		must(t, err)
		for _, snapshot := range snapshots {
			if snapshot.Tag != current.tag {
				t.Errorf("version %d of %s has a snapshot of the old definition", snapshot.Version, stream)
			}
		}
		if got := versionsOf(t, states, tenant, stream); !slices.Equal(got, want) {
			t.Errorf("the snapshots of %s are at %d", stream, got)
		}
	}
}

// The state that a command has left in memory does not keep older versions from getting snapshots.
func TestImportedEventsBeforeACommandGetSnapshots(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	c := NewCommands(states, s.Log, nil)
	imported := slices.Repeat([]domain.NewEvent{{Type: "Deposited", Data: json.RawMessage(`{"amount": 1}`)}}, 1_000)
	_, err := s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: "account-1", Expected: domain.Any, Events: imported}}})
	must(t, err)
	must(t, states.Put(t.Context(), tenant, account()))
	f, err := states.fold(t.Context(), tenant, "account")
	must(t, err)
	key := streamKey{tenant, "account-1"}
	for _, want := range [][]int64{rungsTo(1_001), append(rungsTo(1_001), 1_002)} {
		_, err = send(t, c, tenant, Command{Stream: "account-1", Name: "Deposit", Data: json.RawMessage(`{"amounts": [1]}`)})
		must(t, err)
		must(t, states.takeNewest(t.Context(), key, f))
		if got := versionsOf(t, states, tenant, "account-1"); !slices.Equal(got, want) {
			t.Errorf("the snapshots are at %d, want %d", got, want)
		}
	}
}
