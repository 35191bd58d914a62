package eventlog_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// Slices of a log with gaps return all remaining events in order, and report the highest removed position.
func TestSlicesReportRemovedEvents(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	rapid.Check(t, func(rt *rapid.T) {
		ctx, tenant := t.Context(), tablestest.NewTenant(t, s)
		streams := []string{"order-1", "order-2", "invoice-1"}
		for range rapid.IntRange(1, 8).Draw(rt, "appends") {
			tablestest.Append(t, s, tenant, tablestest.Counted(rapid.SampledFrom(streams).Draw(rt, "stream"), domain.Any, rapid.IntRange(1, 3).Draw(rt, "events")))
		}
		log := tablestest.WholeLog(t, s, tenant)
		head := int64(len(log))
		gone := map[string]int64{}
		versions := map[string]int64{}
		for _, e := range log {
			versions[e.Stream] = e.Version
		}
		left := slices.Clone(log)
		for range rapid.IntRange(0, 3).Draw(rt, "removals") {
			category := rapid.SampledFrom([]string{"order", "invoice"}).Draw(rt, "category")
			upTo := rapid.Int64Range(1, head).Draw(rt, "up to")
			keep := rapid.SliceOfN(rapid.Int64Range(1, head), 0, 3).Draw(rt, "keep")
			db.Remove(t, tenant, category, upTo, keep...)
			left = slices.DeleteFunc(left, func(e domain.Event) bool {
				goes := domain.Category(e.Stream) == category && e.Position <= upTo && !slices.Contains(keep, e.Position)
				if goes {
					gone[category] = max(gone[category], e.Position)
				}
				return goes
			})
		}

		for _, categories := range [][]string{nil, {"order"}, {"invoice", "other"}} {
			slice, err := s.LogSlice(ctx, tenant, domain.LogQuery{From: 1, Limit: 1000, MaxBytes: 1 << 20, Categories: categories})
			tablestest.Must(t, err)
			of := func(category string) bool { return categories == nil || slices.Contains(categories, category) }
			want, highest := []int64(nil), int64(0)
			for _, e := range left {
				if of(domain.Category(e.Stream)) {
					want = append(want, e.Position)
				}
			}
			var floors []string
			for _, category := range []string{"invoice", "order"} {
				if of(category) && gone[category] > 0 {
					highest = max(highest, gone[category])
					floors = append(floors, category)
				}
			}
			var got []int64
			for _, e := range slice.Events {
				got = append(got, e.Position)
			}
			if !slices.Equal(got, want) || slice.RemovedTo != highest {
				rt.Fatalf("of %v it read %v and says that %d was removed; left is %v, removed up to %d", categories, got, slice.RemovedTo, want, highest)
			}
			told, err := s.Floors(ctx, tenant, categories, 1)
			tablestest.Must(t, err)
			var names []string
			for _, f := range told {
				names = append(names, f.Category)
				if f.RemovedTo != gone[f.Category] {
					rt.Fatalf("of %s it says %+v; it is %d", f.Category, f, gone[f.Category])
				}
			}
			if !slices.Equal(names, floors) {
				rt.Fatalf("there are floors of %v; want %v", names, floors)
			}
			if above, err := s.Floors(ctx, tenant, categories, highest+1); err != nil || len(above) > 0 {
				rt.Fatalf("above all that was removed there is %v, %v", above, err)
			}
		}

		// A stream's version is what it was, whatever is left of it, and continues from there.
		for _, stream := range streams {
			slice, err := s.StreamSlice(ctx, tenant, stream, domain.StreamQuery{From: 1, Limit: 1000})
			tablestest.Must(t, err)
			version := slice.Floor
			if n := len(slice.Events); n > 0 {
				version = max(version, slice.Events[n-1].Version)
			}
			if version != versions[stream] || slice.RemovedTo != gone[domain.Category(stream)] {
				rt.Fatalf("%s is at %d (%+v), and has reached %d", stream, version, slice, versions[stream])
			}
			appended := tablestest.Append(t, s, tenant, tablestest.Counted(stream, domain.Expected(version), 1))
			if got := appended.Streams[0].Version; got != version+1 {
				rt.Fatalf("%s went from %d to %d", stream, version, got)
			}
			head++
			if appended.Position != head {
				rt.Fatalf("the log went to %d; want %d", appended.Position, head)
			}
		}
	})
}

// Times are found where events are gone, too: what was removed counts as recorded when the next older event was.
func TestTimesInALogWithGaps(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx, tenant := t.Context(), tablestest.NewTenant(t, s)
	var at []time.Time
	for range 10 {
		tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, 1))
		head, err := s.Head(ctx, tenant)
		tablestest.Must(t, err)
		at = append(at, head.LastAt)
	}
	position := func(moment time.Time) int64 {
		t.Helper()
		p, err := s.PositionAt(ctx, tenant, moment)
		tablestest.Must(t, err)
		v, err := s.VersionAt(ctx, tenant, "order-1", moment)
		tablestest.Must(t, err)
		if p != v {
			t.Fatalf("position %d and version %d are of the same event", p, v)
		}
		return p
	}
	// The first ones are gone: whoever asks for a time before what is left continues right before it.
	db.Remove(t, tenant, "order", 4)
	for i, want := range []int64{4, 4, 4, 4, 5, 6, 7, 8, 9, 10} {
		if got := position(at[i]); got != want {
			t.Errorf("at the time of event %d it says %d; want %d", i+1, got, want)
		}
	}
	if got := position(at[0].Add(-time.Hour)); got != 4 {
		t.Errorf("before all events it says %d; what comes next is at 5", got)
	}
	// Those in the middle are gone.
	db.Remove(t, tenant, "order", 8, 5)
	for i, want := range []int64{4, 4, 4, 4, 8, 8, 8, 8, 9, 10} {
		if got := position(at[i]); got != want {
			t.Errorf("with a hole, at the time of event %d it says %d; want %d", i+1, got, want)
		}
	}
	// Nothing is left: the log continues after its head.
	db.Remove(t, tenant, "order", 10)
	p, err := s.PositionAt(ctx, tenant, at[9])
	tablestest.Must(t, err)
	if p != 10 {
		t.Errorf("of an empty log it says %d; its head is 10", p)
	}
	left, err := s.RecordedAt(ctx, tenant, []int64{1, 10, 11})
	tablestest.Must(t, err)
	if len(left) > 0 {
		t.Errorf("nothing is left, and it knows %v", left)
	}
	// A writer that knew all versions is not confused by it.
	if got := tablestest.Append(t, s, tenant, tablestest.Counted("order-1", 10, 1)); got.Position != 11 || got.Streams[0].Version != 11 {
		t.Errorf("the next event is %+v", got)
	}
	other := tablestest.OpenAgain(t, db)
	if got := tablestest.Append(t, other, tenant, tablestest.Counted("order-1", 11, 2)); got.Position != 13 || got.Streams[0].Version != 13 {
		t.Errorf("the next events of another process are %+v", got)
	}
	db.Remove(t, tenant, "order", 13) // unknown to the first process, so its catch-up finds fewer events
	if got := tablestest.Append(t, s, tenant, tablestest.Counted("order-1", 13, 1)); got.Position != 14 || got.Streams[0].Version != 14 {
		t.Errorf("behind removed events of another process comes %+v", got)
	}
}

// What is counted for progress and lags leaves out what is gone, as far as that is known.
func TestCountsInALogWithGaps(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx, tenant := t.Context(), tablestest.NewTenant(t, s)
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, 50))
	tablestest.Append(t, s, tenant, tablestest.Counted("invoice-1", domain.Any, 50))
	db.Remove(t, tenant, "order", 40)
	for _, c := range []struct {
		categories, types []string
		after, want       int64
	}{
		{nil, nil, 0, 60}, {nil, nil, 40, 60}, {nil, nil, 10, 90}, {nil, nil, 50, 50}, {nil, []string{"Counted"}, 0, 60}, {[]string{"order"}, nil, 0, 10}, {[]string{"order"}, nil, 45, 5},
	} {
		n, err := s.CountEvents(ctx, tenant, domain.Source{Categories: c.categories}, c.types, c.after, 100)
		tablestest.Must(t, err)
		if n != c.want {
			t.Errorf("%v %v behind %d: %d; want %d", c.categories, c.types, c.after, n, c.want)
		}
		any, err := s.AnyEvent(ctx, tenant, domain.Source{Categories: c.categories}, c.types, c.after, 100)
		tablestest.Must(t, err)
		if !any {
			t.Errorf("%v %v behind %d: there are events", c.categories, c.types, c.after)
		}
	}
	any, err := s.AnyEvent(ctx, tenant, domain.Source{Categories: []string{"order"}}, nil, 0, 40)
	tablestest.Must(t, err)
	if any {
		t.Error("what is gone is found")
	}
}

// Losses are kept by tenant and build, with the highest position, and go with their build.
func TestLosses(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	ctx, one, other := t.Context(), tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	for _, tenant := range []domain.TenantID{one, other} {
		tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, 1))
	}
	id := domain.ProjectionID{Name: "orders"}
	put := func(tenant domain.TenantID, build int64, losses ...domain.Loss) {
		t.Helper()
		tablestest.Must(t, s.PutLosses(ctx, tenant, id, build, losses))
	}
	want := func(tenant domain.TenantID, build int64, losses ...domain.Loss) {
		t.Helper()
		got, err := s.Losses(ctx, tenant, id, build)
		tablestest.Must(t, err)
		if !slices.Equal(got, losses) {
			t.Errorf("build %d lacks %v; want %v", build, got, losses)
		}
	}
	put(one, 1, domain.Loss{Category: "order", RemovedTo: 5}, domain.Loss{Category: "invoice", RemovedTo: 9})
	put(one, 1, domain.Loss{Category: "order", RemovedTo: 3})
	put(one, 1, domain.Loss{Category: "invoice", RemovedTo: 12})
	put(one, 2, domain.Loss{Category: "order", RemovedTo: 7})
	put(other, 1, domain.Loss{Category: "order", RemovedTo: 8})
	want(one, 1, domain.Loss{Category: "invoice", RemovedTo: 12}, domain.Loss{Category: "order", RemovedTo: 5})
	want(one, 2, domain.Loss{Category: "order", RemovedTo: 7})
	want(other, 1, domain.Loss{Category: "order", RemovedTo: 8})
	tablestest.Must(t, s.ForgetBuild(ctx, domain.Build{ProjectionID: id, Number: 1}))
	want(one, 1)
	want(other, 1)
	want(one, 2, domain.Loss{Category: "order", RemovedTo: 7})
}

// Floors of one tenant are nobody else's; who may look at all of them sees whose they are.
func TestFloorsKeepTenantsApart(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx, one, other := t.Context(), tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	for _, tenant := range []domain.TenantID{one, other} {
		tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, 10))
	}
	db.Remove(t, one, "order", 4)
	slice, err := s.LogSlice(ctx, other, domain.LogQuery{From: 1, Limit: 100})
	tablestest.Must(t, err)
	if len(slice.Events) != 10 || slice.RemovedTo != 0 {
		t.Errorf("the other tenant reads %d events, and that %d was removed", len(slice.Events), slice.RemovedTo)
	}
	for _, c := range []struct {
		tenants    []domain.TenantID
		categories []string
		want       int
	}{{nil, nil, 1}, {nil, []string{"order"}, 1}, {nil, []string{"user"}, 0}, {[]domain.TenantID{one, other}, nil, 1}, {[]domain.TenantID{other}, nil, 0}} {
		found, err := s.TenantFloors(ctx, c.tenants, c.categories)
		tablestest.Must(t, err)
		if len(found) != c.want || c.want == 1 && (found[0].Tenant != one || found[0].RemovedTo != 4 || found[0].AnnouncedTo != 4 || found[0].Removed != 4) {
			t.Errorf("%v %v: %+v", c.tenants, c.categories, found)
		}
	}
	_, err = db.Pool(t, pgtest.RoleSuperuser, 1).Exec(ctx, "update manifold.retention_floors set announced_to = 9")
	tablestest.Must(t, err)
	found, err := s.Floors(ctx, one, nil, 9)
	tablestest.Must(t, err)
	if len(found) != 1 || found[0].AnnouncedTo != 9 || found[0].RemovedTo != 4 {
		t.Errorf("announced: %+v", found)
	}
}
