package aggregate_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestAggregatesAreKeptByTenant(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	mine, other := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	first := aggregate.Definition{Category: "order", Initial: json.RawMessage(`{"n": 0}`), On: map[string]string{"*": "state"}, SnapshotEvery: 10}
	tablestest.Must(t, s.PutAggregate(t.Context(), mine, first))
	tablestest.Must(t, s.PutAggregate(t.Context(), other, aggregate.Definition{Category: "order", On: map[string]string{"A": "null"}}))

	got, err := s.Aggregate(t.Context(), mine, "order")
	tablestest.Must(t, err)
	if got.On["*"] != "state" || got.SnapshotEvery != 10 || string(got.Initial) != `{"n": 0}` || got.UpdatedAt.IsZero() {
		t.Fatalf("got %+v", got)
	}
	first.SnapshotEvery = 20
	tablestest.Must(t, s.PutAggregate(t.Context(), mine, first))
	tablestest.Must(t, s.PutAggregate(t.Context(), mine, aggregate.Definition{Category: "basket", On: map[string]string{"*": "state"}}))
	all, err := s.Aggregates(t.Context(), mine)
	tablestest.Must(t, err)
	if len(all) != 2 || all[0].Category != "basket" || all[1].SnapshotEvery != 20 {
		t.Fatalf("got %+v", all)
	}
	tablestest.Must(t, s.DeleteAggregate(t.Context(), mine, "order"))
	tablestest.WantCode(t, s.DeleteAggregate(t.Context(), mine, "order"), domain.CodeNotFound)
	_, err = s.Aggregate(t.Context(), mine, "order")
	tablestest.WantCode(t, err, domain.CodeNotFound)
	if got, err := s.Aggregate(t.Context(), other, "order"); err != nil || got.On["A"] != "null" {
		t.Fatalf("the other tenant's is %+v, %v", got, err)
	}
}

// After each of many puts, the kept snapshots are those of a model.
func TestOldSnapshotsAreRemoved(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	// Rungs begin with the versions 1, 401 and 801.
	versions := []int64{1, 2, 9, 100, 399, 400, 401, 402, 500, 800, 801, 900, 901, 1200}
	tags := []string{aggregate.DefinitionTag("a"), aggregate.DefinitionTag("b"), "client", "other"}
	rapid.Check(t, func(r *rapid.T) {
		tenant := domain.NewTenantID()
		model := map[string]map[string][]int64{} // stream -> tag -> versions, the newest first
		for range rapid.IntRange(1, 15).Draw(r, "puts") {
			stream := rapid.SampledFrom([]string{"order-1", "order-2"}).Draw(r, "stream")
			tag := rapid.SampledFrom(tags).Draw(r, "tag")
			version := rapid.SampledFrom(versions).Draw(r, "version")
			state := fmt.Sprintf(`{"v": %d}`, version)
			if err := s.PutSnapshots(t.Context(), tenant, aggregate.Snapshot{Stream: stream, Tag: tag, Version: version, State: json.RawMessage(state)}); err != nil {
				r.Fatal(err)
			}
			if model[stream] == nil {
				model[stream] = map[string][]int64{}
			}
			if aggregate.IsDefinitionTag(tag) {
				for other := range model[stream] {
					if aggregate.IsDefinitionTag(other) && other != tag {
						delete(model[stream], other)
					}
				}
			}
			there := append(model[stream][tag], version)
			slices.Sort(there)
			there = slices.Compact(there)
			slices.Reverse(there)
			kept := slices.Clone(there[:min(len(there), aggregate.SnapshotsKept)])
			for i := len(kept); i < len(there) && aggregate.IsDefinitionTag(tag); i++ {
				if first := i+1 == len(there) || (there[i+1]-1)/400 != (there[i]-1)/400; first {
					kept = append(kept, there[i])
				}
			}
			model[stream][tag] = kept
		}
		for _, stream := range []string{"order-1", "order-2"} {
			for _, tag := range tags {
				for _, atMost := range append(versions, 0) {
					got, ok, err := s.Snapshot(t.Context(), tenant, stream, tag, atMost, false)
					if err != nil {
						r.Fatal(err)
					}
					i := slices.IndexFunc(model[stream][tag], func(v int64) bool { return atMost == 0 || v <= atMost })
					if ok != (i >= 0) || ok && got.Version != model[stream][tag][i] {
						r.Fatalf("%s %s up to %d: got version %d, %v; the model has %v", stream, tag, atMost, got.Version, ok, model[stream][tag])
					}
					if ok && string(got.State) != fmt.Sprintf(`{"v": %d}`, got.Version) {
						r.Fatalf("version %d has the state %s", got.Version, got.State)
					}
				}
			}
			var newest int64
			for _, versions := range model[stream] {
				newest = max(newest, versions[0])
			}
			got, ok, err := s.LatestSnapshot(t.Context(), tenant, stream, 0, "")
			if err != nil || ok != (newest > 0) || got.Version != newest {
				r.Fatalf("the latest of %s is %d, %v, %v; the model has %d", stream, got.Version, ok, err, newest)
			}
		}
	})
}

func TestDeletingAnAggregateRemovesWhatItFolded(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant, other := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	tablestest.Must(t, s.PutAggregate(t.Context(), tenant, aggregate.Definition{Category: "order", On: map[string]string{"*": "state"}}))
	tag := aggregate.DefinitionTag("a")
	put := func(tenant domain.TenantID, stream, tag string) {
		tablestest.Must(t, s.PutSnapshots(t.Context(), tenant, aggregate.Snapshot{Stream: stream, Tag: tag, Version: 1, State: json.RawMessage(`{}`)}))
	}
	put(tenant, "order-1", tag)
	put(tenant, "order-1", "client")
	put(tenant, "orders-1", tag)
	put(other, "order-1", tag)
	tablestest.Must(t, s.DeleteAggregate(t.Context(), tenant, "order"))
	for _, want := range []struct {
		tenant      domain.TenantID
		stream, tag string
		there       bool
	}{
		{tenant, "order-1", tag, false},
		{tenant, "order-1", "client", true},
		{tenant, "orders-1", tag, true},
		{other, "order-1", tag, true},
	} {
		_, there, err := s.Snapshot(t.Context(), want.tenant, want.stream, want.tag, 0, false)
		tablestest.Must(t, err)
		if there != want.there {
			t.Errorf("%s %s: there is %v", want.stream, want.tag, there)
		}
	}
}

// An erasure removes the snapshots that were folded from the erased events, and keeps earlier ones: retention may have
// removed what they were folded from.
func TestForgetSnapshots(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	for _, stream := range []string{"order-1", "order-2"} {
		tablestest.AppendTo(t, s, tenant, stream, "Happened", "1", "2", "3") // positions 1 to 3, and 4 to 6
		for _, version := range []int64{1, 2, 3} {
			tablestest.Must(t, s.PutSnapshots(t.Context(), tenant, aggregate.Snapshot{Stream: stream, Tag: "t", Version: version, State: json.RawMessage(`{}`)}))
		}
	}
	for _, c := range []struct {
		positions []int64
		streams   []string
		want      int64
	}{
		{[]int64{2, 3}, []string{"order-1"}, 2},         // of the versions 2 and 3
		{[]int64{6}, []string{"order-1", "order-2"}, 2}, // version 3, and what is left of a stream without such an event
	} {
		if n, err := s.ForgetSnapshots(t.Context(), tenant, c.positions, c.streams); err != nil || n != c.want {
			t.Errorf("%d snapshots are removed, %v; want %d", n, err, c.want)
		}
	}
}

func TestUnsnapshottedStreams(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	// 6,000 events of 600 streams, ten each, among as many of another category: more than one slice.
	super := db.Pool(t, "postgres", 1)
	for _, category := range []string{"order", "noise"} {
		_, err := super.Exec(t.Context(), `
			insert into manifold.events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, created_at)
			select $1, 2 * n - $3, gen_random_uuid(), $2 || '-' || (n % 600), (n - 1) / 600 + 1, 'Happened', '{}', now()
			from generate_series(1, 6000) n`, tenant, category, map[string]int{"order": 1, "noise": 0}[category])
		tablestest.Must(t, err)
	}
	tag := aggregate.DefinitionTag("a")
	snapshot := func(stream, tag string, version int64) {
		tablestest.Must(t, s.PutSnapshots(t.Context(), tenant, aggregate.Snapshot{Stream: stream, Tag: tag, Version: version, State: json.RawMessage(`{}`)}))
	}
	snapshot("order-1", tag, 10)                          // up to date
	snapshot("order-2", tag, 8)                           // two events behind
	snapshot("order-3", tag, 4)                           // six events behind
	snapshot("order-4", aggregate.DefinitionTag("b"), 10) // of another definition
	found := map[string]bool{}
	calls := 0
	for after := int64(0); after < 12000; calls++ {
		streams, seen, err := s.UnsnapshottedStreams(t.Context(), tenant, "order", tag, 5, after, 12000)
		tablestest.Must(t, err)
		if seen <= after {
			t.Fatalf("looked from %d to %d", after, seen)
		}
		after = seen
		for _, stream := range streams {
			found[stream] = true
		}
	}
	if calls < 2 {
		t.Errorf("all was one slice")
	}
	if len(found) != 598 || found["order-1"] || found["order-2"] || !found["order-3"] || !found["order-4"] {
		t.Errorf("found %d streams", len(found))
	}
}

// Outcomes of commands are removed whatever their number, and only those of the tenant, also while others are added.
func TestForgetOutcomes(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant, other := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	add := func(of domain.TenantID, n int) {
		_, err := super.Exec(t.Context(), `
			insert into manifold.command_outcomes (tenant_id, outcome_id, outcome)
			select $1, gen_random_uuid(), '{}' from generate_series(1, $2)`, of, n)
		tablestest.Must(t, err)
	}
	const n = 12_345
	add(tenant, n)
	add(other, n)
	if removed, err := s.ForgetOutcomes(t.Context(), tenant); err != nil || removed != n {
		t.Errorf("%d outcomes are removed, %v", removed, err)
	}

	network, statements := pgtest.NewNetwork(t, db), 0
	network.Before("delete from command_outcomes", func() bool {
		if statements++; statements < 10 {
			add(tenant, 1)
		}
		return true
	})
	busy := tablestest.OpenWith(t, db, func(c *tables.Config) { c.AppURL = network.URL(t, db, migrations.RoleApp) })
	add(tenant, n)
	if removed, err := busy.ForgetOutcomes(t.Context(), tenant); err != nil || removed != n+3 || statements != 3 {
		t.Errorf("while commands are rejected, %d statements remove %d outcomes, %v", statements, removed, err)
	}
	var left int
	tablestest.Must(t, super.QueryRow(t.Context(), "select count(*) from manifold.command_outcomes").Scan(&left))
	if left != n {
		t.Errorf("%d outcomes are left", left)
	}
}
