package rebuild_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/rebuild"
)

// poison appends an event that every version of checked refuses, and then good ones.
func (v *service) poison(t *testing.T, tenant domain.TenantID, good int) (position int64) {
	t.Helper()
	appended, err := v.store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{
		Stream: "x-1", Expected: domain.Any, Events: []domain.NewEvent{{Type: "Add", Data: json.RawMessage(`{"k": "key 3", "n": 1, "bad": true}`)}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	v.append(t, tenant, good)
	return appended.Position
}

// checked is sums, but cannot fold events with "bad"; onError is its setting.
func checked(times int, onError domain.OnError) domain.Definition {
	d := sums(times)
	d.OnError = onError
	d.On["Add"] = "has(event.data.bad) ? {'a': 1 / 0} : " + d.On["Add"]
	return d
}

// folded waits until the live build of a tenant has caught up or stopped at a fault.
func (v *service) folded(t *testing.T, tenant domain.TenantID) projection.Status {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := v.catalog.Status(t.Context(), tenant, "sums")
		if err != nil {
			t.Fatal(err)
		}
		if s.State == projection.StateCaughtUp || s.State == projection.StateFaulted {
			return s
		}
		<-tick.C
	}
}

// sumIn returns how many events are in a tenant's document, and the version of the definition that folded it.
func (v *service) sumIn(t *testing.T, tenant domain.TenantID, id string) sum {
	t.Helper()
	return v.got(t, tenant, 0)[id]
}

// A tenant that has skipped an event, or discarded the events that wait for a parked document, blocks no later version
// of a shared definition: the skip applies to that version too, until it is withdrawn. After that, the tenant stays on
// its old build.
func TestASkipHoldsForLaterVersionsUntilWithdrawn(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	v.work(t)
	hostile, quiet := v.tenant(t), v.tenant(t)
	v.append(t, hostile, 20)
	v.append(t, quiet, 50)
	position := v.poison(t, hostile, 20)
	d, err := v.rebuilds.Deploy(t.Context(), domain.Everyone, checked(1, domain.OnErrorPark), "test", false)
	if err != nil {
		t.Fatal(err)
	}
	id := d.Projection.ProjectionID
	if s := v.folded(t, hostile); s.Parked != 1 {
		t.Fatalf("its status is %+v", s)
	}
	if err := v.catalog.DiscardParked(t.Context(), hostile, "sums", "key 3", "test"); err != nil {
		t.Fatal(err)
	}
	v.folded(t, quiet)

	second := checked(2, domain.OnErrorPark)
	r := v.ended(t, v.start(t, id, rebuild.Request{Definition: &second}))
	if r.State != domain.RebuildSwapped || r.Faulted != nil {
		t.Fatalf("the next version is %+v", r)
	}
	v.mustBe(t, quiet, 2)
	if got := v.sumIn(t, hostile, "key 3"); got.Times != 2 || got.Events != 2 {
		t.Errorf("the document with the discarded events is %+v", got)
	}
	skipped, err := v.catalog.Skipped(t.Context(), hostile, "sums")
	if err != nil || len(skipped) != 3 || skipped[0].Position != position || !skipped[0].Lasting {
		t.Fatalf("skipped are %+v, %v", skipped, err)
	}

	// Withdrawn, the events that can be folded are, and the one that cannot parks its document again, which the live
	// build folds: so the tenant stays on that.
	for _, event := range skipped {
		if err := v.catalog.WithdrawSkip(t.Context(), hostile, "sums", event.Position); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.catalog.WithdrawSkip(t.Context(), hostile, "sums", position); !domain.IsCode(err, domain.CodeNotFound) {
		t.Errorf("withdrawn once more: %v", err)
	}
	third := checked(3, domain.OnErrorPark)
	r = v.ended(t, v.start(t, id, rebuild.Request{Definition: &third}))
	if r.State != domain.RebuildSwapped || r.Faulted == nil || r.Faulted.Count != 1 || r.Faulted.First[0].Tenant != hostile || r.Faulted.First[0].Position != position {
		t.Fatalf("the version after that is %+v, with %+v", r, r.Faulted)
	}
	v.mustBe(t, quiet, 3)
	if got := v.sumIn(t, hostile, "key 4"); got.Times != 2 {
		t.Errorf("the tenant that was left behind has %+v", got)
	}
}

// A fault in one tenant's events stops only that tenant. Its old build keeps following the log with the old definition,
// and the operator sees the reason. Once the fault is handled, a rebuild for that tenant moves it to the new
// definition.
func TestAFaultLeavesOneTenantBehind(t *testing.T) {
	t.Parallel()
	base := newService(t)
	v := base.process(rebuild.Config{Keep: time.Nanosecond})
	v.follow(t)
	v.work(t)
	hostile, quiet, empty := v.tenant(t), v.tenant(t), v.tenant(t)
	v.append(t, quiet, 50)
	position := v.poison(t, hostile, 30)
	id := v.deployed(t, domain.Everyone, hostile, quiet)
	old := v.live(t, hostile, id)

	second := checked(2, domain.OnErrorStop)
	r := v.ended(t, v.start(t, id, rebuild.Request{Definition: &second}))
	if r.State != domain.RebuildSwapped || r.Faulted == nil || r.Faulted.Count != 1 || r.Faulted.First[0].Tenant != hostile || r.Faulted.First[0].Position != position {
		t.Fatalf("the rebuild is %+v, with %+v", r, r.Faulted)
	}
	v.mustBe(t, quiet, 2)
	v.append(t, empty, 10)
	v.mustBe(t, empty, 2)
	// Its documents follow its log by the definition that they are made by, and their table stays.
	v.append(t, hostile, 10)
	v.mustBe(t, hostile, 1)
	if err := v.rebuilds.DropRetired(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.append(t, hostile, 10)
	v.mustBe(t, hostile, 1)
	if live := v.live(t, hostile, id); live != old {
		t.Fatalf("live for it is build %d, and was %d", live, old)
	}
	s, err := v.catalog.Status(t.Context(), hostile, "sums")
	if err != nil || s.Projection.Fault == nil || s.Projection.Fault.Position != position || !strings.Contains(s.Projection.Fault.Reason, "division") {
		t.Fatalf("its status is %+v, %v", s, err)
	}
	left, err := v.rebuilds.LeftBehind(t.Context(), id)
	if err != nil || len(left) != 1 || left[0].Tenant != hostile {
		t.Fatalf("left behind are %+v, %v", left, err)
	}
	page, _, err := v.rebuilds.Tenants(t.Context(), id, r.ID, false, domain.TenantID{}, 10)
	if err != nil || len(page) != 3 {
		t.Fatal(page, err)
	}
	for _, p := range page {
		if behind := p.Tenant == hostile; p.Swapped == behind || (p.Fault != nil) != behind {
			t.Errorf("the progress of %s is %+v", p.Tenant, p)
		}
	}

	if page, _, err = v.rebuilds.Tenants(t.Context(), id, r.ID, true, domain.TenantID{}, 10); err != nil || len(page) != 1 || page[0].Tenant != hostile {
		t.Errorf("the faulted ones are %+v, %v", page, err)
	}

	// The previous release takes the row for what an inline move has left over, and ends it with this statement.
	_, err = v.db.Pool(t, "postgres", 1).Exec(t.Context(), `
		update manifold.tenant_builds b set build = $2, base = -1, definition = null, held_by = null, updated_at = now() where b.tenant_id = $1`, hostile, r.Build)
	if err == nil || !strings.Contains(err.Error(), "tenant_builds_pinned") {
		t.Fatalf("the previous release ends the row: %v", err)
	}

	// The next version meets the fault again, and blocks nobody either.
	third := checked(3, domain.OnErrorStop)
	if r = v.ended(t, v.start(t, id, rebuild.Request{Definition: &third})); r.State != domain.RebuildSwapped || r.Faulted == nil {
		t.Fatalf("the third version is %+v", r)
	}
	v.mustBe(t, quiet, 3)
	v.mustBe(t, hostile, 1)
	// A retry before anything was done changes nothing.
	if r = v.ended(t, v.start(t, id, only(hostile))); r.State != domain.RebuildFailed || !strings.Contains(r.Error, fmt.Sprint("event ", position)) {
		t.Fatalf("the retry too early is %+v", r)
	}
	v.mustBe(t, hostile, 1)

	// The tenant skips the event, and a rebuild for it brings it to the version that the others have.
	if _, err := v.catalog.Skip(t.Context(), hostile, "sums", position+1, "", "test"); !domain.IsCode(err, domain.CodeConflict) {
		t.Errorf("another event was skipped: %v", err)
	}
	if _, err := v.catalog.Skip(t.Context(), hostile, "sums", position, "a test", "test"); err != nil {
		t.Fatal(err)
	}
	v.mustBe(t, hostile, 1)
	if r = v.ended(t, v.start(t, id, only(hostile))); r.State != domain.RebuildSwapped || r.Faulted != nil {
		t.Fatalf("the retry is %+v", r)
	}
	if got := v.sumIn(t, hostile, "key 3"); got.Times != 3 {
		t.Errorf("after the retry it has %+v", got)
	}
	if left, err := v.rebuilds.LeftBehind(t.Context(), id); err != nil || len(left) != 0 {
		t.Errorf("left behind are %+v, %v", left, err)
	}
	v.until(t, r, "dropped", func(domain.Rebuild) bool {
		_, err := v.drivers["default"].Checkpoint(t.Context(), domain.Build{ProjectionID: id, Number: old, Database: "default"}, hostile)
		return errors.Is(err, drivers.ErrNoTable)
	})
	// The last version for all ends the tenant's separate build.
	fourth := checked(4, domain.OnErrorStop)
	if r = v.ended(t, v.start(t, id, rebuild.Request{Definition: &fourth})); r.State != domain.RebuildSwapped || r.Faulted != nil {
		t.Fatalf("the fourth version is %+v", r)
	}
	if live := v.live(t, hostile, id); live != r.Build {
		t.Errorf("live for it is build %d, not %d", live, r.Build)
	}
}

// A failed assertion leaves one tenant behind as well. The rebuild fails if it may leave none behind, or if no tenant
// with events is left.
func TestMaxFaultedTenants(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	v.work(t)
	hostile, quiet := v.tenant(t), v.tenant(t)
	v.tenant(t) // it has no events, and counts for nothing
	v.append(t, quiet, 50)
	v.append(t, hostile, 80)
	id := v.deployed(t, domain.Everyone, hostile, quiet)
	assert := rebuild.Request{RebuildOptions: domain.RebuildOptions{Assert: []string{"doc.events < 8"}}}
	none := assert
	none.MaxFaulted = new(0)
	if r := v.ended(t, v.start(t, id, none)); r.State != domain.RebuildFailed || !strings.Contains(r.Error, hostile.String()) {
		t.Fatalf("with MaxFaulted 0: %+v", r)
	}
	r := v.ended(t, v.start(t, id, assert))
	if r.State != domain.RebuildSwapped || r.Faulted == nil || r.Faulted.Count != 1 || r.Faulted.First[0].Tenant != hostile || r.Faulted.First[0].Position != 0 {
		t.Fatalf("the rebuild is %+v, with %+v", r, r.Faulted)
	}
	if live := v.live(t, quiet, id); live != r.Build || v.live(t, hostile, id) == r.Build {
		t.Errorf("live are %d and %d", live, v.live(t, hostile, id))
	}
	broken := sums(2)
	broken.On["Add"] = "{'a': 1 / 0}"
	if r = v.ended(t, v.start(t, id, rebuild.Request{Definition: &broken})); r.State != domain.RebuildFailed || !strings.Contains(r.Error, "none of the 2 tenants") {
		t.Fatalf("the definition that faults for all is %+v", r)
	}
	if _, err := v.rebuilds.Start(t.Context(), id, rebuild.Request{MaxFaulted: new(domain.MaxFaultedTenants + 1)}); !domain.IsCode(err, domain.CodeInvalidRequest) {
		t.Errorf("too many: %v", err)
	}
	v.mustBe(t, quiet, 1)
	v.mustBe(t, hostile, 1)
}

// After a rebuild that left a tenant behind, a rollback brings all tenants together on the build that the tenant never
// left.
func TestARollbackAfterATenantWasLeftBehind(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	v.work(t)
	hostile, quiet := v.tenant(t), v.tenant(t)
	v.append(t, quiet, 50)
	v.poison(t, hostile, 30)
	id := v.deployed(t, domain.Everyone, hostile, quiet)
	old := v.live(t, hostile, id)
	second := checked(2, domain.OnErrorStop)
	r := v.ended(t, v.start(t, id, rebuild.Request{Definition: &second}))
	if r.State != domain.RebuildSwapped || r.Faulted == nil {
		t.Fatalf("the rebuild is %+v", r)
	}
	v.append(t, hostile, 10)
	v.append(t, quiet, 10)
	back, err := v.rebuilds.Rollback(t.Context(), id, r.ID, "test", false)
	if err != nil {
		t.Fatal(err)
	}
	if back = v.ended(t, back); back.State != domain.RebuildSwapped || back.Faulted != nil {
		t.Fatalf("the rollback is %+v", back)
	}
	for _, tenant := range []domain.TenantID{hostile, quiet} {
		if live := v.live(t, tenant, id); live != old {
			t.Errorf("live is build %d, not %d", live, old)
		}
		v.append(t, tenant, 10)
		v.mustBe(t, tenant, 1)
	}
}

// A new definition for some tenants applies to their existing and later events, until a rebuild for all tenants ends
// it. It can be rolled back.
func TestNewDefinitionForSomeTenants(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	v.work(t)
	one, two := v.tenant(t), v.tenant(t)
	v.append(t, one, 50)
	v.append(t, two, 50)
	id := v.deployed(t, domain.Everyone, one, two)
	trial := sums(2)
	request := only(one)
	request.Definition = &trial
	r := v.ended(t, v.start(t, id, request))
	if r.State != domain.RebuildSwapped {
		t.Fatalf("the trial is %+v", r)
	}
	both := func(times1, times2 int64) {
		t.Helper()
		v.append(t, one, 10)
		v.append(t, two, 10)
		v.mustBe(t, one, times1)
		v.mustBe(t, two, times2)
	}
	both(2, 1)
	if p, err := v.store.Projection(t.Context(), id); err != nil || !folding.SameDefinition(p.Definition, sums(1)) {
		t.Errorf("the projection's definition is %+v, %v", p.Definition, err)
	}
	back, err := v.rebuilds.Rollback(t.Context(), id, r.ID, "test", false)
	if err != nil {
		t.Fatal(err)
	}
	if back = v.ended(t, back); back.State != domain.RebuildSwapped {
		t.Fatalf("the rollback is %+v", back)
	}
	both(1, 1)
	if r = v.ended(t, v.start(t, id, request)); r.State != domain.RebuildSwapped {
		t.Fatalf("the second trial is %+v", r)
	}
	// From one trial to the next, and back.
	next := sums(3)
	request.Definition = &next
	if r = v.ended(t, v.start(t, id, request)); r.State != domain.RebuildSwapped {
		t.Fatalf("the third trial is %+v", r)
	}
	both(3, 1)
	if back, err = v.rebuilds.Rollback(t.Context(), id, r.ID, "test", false); err != nil {
		t.Fatal(err)
	}
	if back = v.ended(t, back); back.State != domain.RebuildSwapped {
		t.Fatalf("the rollback is %+v", back)
	}
	both(2, 1)
	if r = v.ended(t, v.start(t, id, rebuild.Request{Definition: &next})); r.State != domain.RebuildSwapped {
		t.Fatalf("the rebuild for all is %+v", r)
	}
	both(3, 3)

	moved := sums(4)
	moved.Database = "elsewhere"
	request.Definition = &moved
	if _, err := v.rebuilds.Start(t.Context(), id, request); !domain.IsCode(err, domain.CodeInvalidRequest) {
		t.Errorf("to another database: %v", err)
	}
	moved = sums(4)
	moved.Mode = domain.ModeLive
	if _, err := v.rebuilds.Start(t.Context(), id, request); !domain.IsCode(err, domain.CodeInvalidRequest) {
		t.Errorf("to another mode: %v", err)
	}
}

// One swap leaves a thousand tenants behind at once, but none that is erased meanwhile.
func TestManyTenantsAreLeftBehindAtOnce(t *testing.T) {
	t.Parallel()
	v := newService(t)
	quiet := v.tenant(t)
	v.append(t, quiet, 10)
	id := v.deployed(t, domain.Everyone)
	p, err := v.store.Projection(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	_, err = v.db.Pool(t, "postgres", 1).Exec(t.Context(), `
		with many as (
		  insert into manifold.tenants (tenant_id, name, state)
		  select gen_random_uuid(), 'many ' || n, 'active' from generate_series(1, 1000) n returning tenant_id
		)
		insert into manifold.logs (tenant_id, head) select tenant_id, 7 from many`)
	if err != nil {
		t.Fatal(err)
	}
	tenants, err := v.store.Tenants(t.Context(), domain.TenantID{}, 2000)
	if err != nil {
		t.Fatal(err)
	}
	var left []domain.TenantFault
	for _, tenant := range tenants {
		if tenant.ID != quiet {
			left = append(left, domain.TenantFault{Tenant: tenant.ID, Reason: strings.Repeat("why ", 500), Position: 7})
		}
	}
	gone := domain.NewTenantID() // as after its erasure
	left = append(left, domain.TenantFault{Tenant: gone, Reason: "erased"})
	r := v.start(t, id, rebuild.Request{})
	r, ok, err := v.store.ClaimRebuild(t.Context(), id, r.ID, domain.NewRebuildID().String(), time.Minute)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	r.State = domain.RebuildValidating
	if _, err := v.store.SaveRebuild(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := v.store.HoldProjection(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := v.store.SwapProjection(t.Context(), r, left, time.Now()); err != nil {
		t.Fatal(err)
	}
	t.Logf("a swap that leaves %d tenants behind took %s", len(left), time.Since(began))
	found, err := v.rebuilds.LeftBehind(t.Context(), id)
	if err != nil || len(found) != 1000 {
		t.Fatalf("left behind are %d, %v", len(found), err)
	}
	for _, tenant := range []domain.TenantID{left[0].Tenant, left[999].Tenant} {
		if live := v.live(t, tenant, id); live != p.Build {
			t.Errorf("live for %s is build %d, and was %d", tenant, live, p.Build)
		}
	}
	if live := v.live(t, quiet, id); live != r.Build {
		t.Errorf("live for the others is build %d, not %d", live, r.Build)
	}
	if taken, err := v.store.MarkDropping(t.Context(), p.LiveBuild()); err != nil || taken {
		t.Errorf("the build that they are on may be dropped: %v", err)
	}
}

// A tenant can be left behind in any combination of the old and new modes. Its appends keep folding into an inline
// build, a live build is folded on request, and a later rebuild without the fault brings the tenant along.
func TestLeftBehindInEveryMode(t *testing.T) {
	t.Parallel()
	for _, from := range []domain.Mode{domain.ModeInline, domain.ModeAsync, domain.ModeLive} {
		for _, to := range []domain.Mode{domain.ModeInline, domain.ModeAsync} {
			t.Run(fmt.Sprintf("%s to %s", from, to), func(t *testing.T) {
				t.Parallel()
				db := pgtest.Database(t)
				super := db.Pool(t, pgtest.RoleSuperuser, 2)
				v := newInliner(t, db)
				hostile, quiet := domain.NewTenantID(), domain.NewTenantID()
				appendOne := func(tenant domain.TenantID, n int) int64 {
					t.Helper()
					appended, err := v.store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{
						Stream: "x-1", Expected: domain.Any, Events: []domain.NewEvent{{Type: "Add", Data: json.RawMessage(fmt.Sprintf(`{"k": "key", "n": %d}`, n))}},
					}}})
					if err != nil {
						t.Fatal(err)
					}
					return appended.Position
				}
				for _, tenant := range []domain.TenantID{hostile, quiet} {
					if err := v.store.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: tenant.String()}); err != nil {
						t.Fatal(err)
					}
					appendOne(tenant, 1)
				}
				v.follow(t)
				id := domain.ProjectionID{Owner: domain.Everyone, Name: "shared"}
				definition := variant(id.Name, 0)
				definition.Mode = from
				if _, err := v.catalog.Create(t.Context(), id.Owner, definition, "test"); err != nil {
					t.Fatal(err)
				}
				isInline := func(tenant domain.TenantID, want bool) {
					t.Helper()
					until(t, "appends to take over", func() bool {
						p, err := v.store.LiveProjection(t.Context(), tenant, id)
						if err != nil {
							t.Fatal(err)
						}
						return p.Inline == want
					})
				}
				isInline(hostile, from == domain.ModeInline)
				appendOne(hostile, 7) // an odd variant cannot fold it
				document := func(tenant domain.TenantID, at int64, variant, n int) {
					t.Helper()
					d, err := v.catalog.Document(t.Context(), tenant, id.Name, "key", projection.Freshness{MinPosition: at, Wait: time.Minute})
					if err != nil {
						t.Fatal(err)
					}
					var has struct{ V, N int }
					if err := json.Unmarshal(d.Data, &has); err != nil || has.V != variant || has.N != n {
						t.Errorf("the document is %s, %v; want that of variant %d with %d", d.Data, err, variant, n)
					}
				}
				deploy := func(mode domain.Mode, k int) domain.Rebuild {
					t.Helper()
					definition := variant(id.Name, k)
					definition.Mode = mode
					r, err := v.rebuilds.Start(t.Context(), id, rebuild.Request{Definition: &definition, By: "test"})
					if err != nil {
						t.Fatal(err)
					}
					until(t, "the rebuild", func() bool {
						if r, err = v.rebuilds.Get(t.Context(), id, r.ID); err != nil {
							t.Fatal(err)
						}
						return r.State.Ended()
					})
					if r.State != domain.RebuildSwapped {
						t.Fatalf("the rebuild is %s: %s", r.State, r.Error)
					}
					look(t, t.Context(), super)
					return r
				}
				if r := deploy(to, 1); r.Faulted == nil || r.Faulted.Count != 1 || r.Faulted.First[0].Tenant != hostile {
					t.Fatalf("faulted are %+v", r.Faulted)
				}
				isInline(hostile, from == domain.ModeInline)
				isInline(quiet, to == domain.ModeInline)
				document(hostile, appendOne(hostile, 7), 0, 15)
				document(quiet, appendOne(quiet, 2), 1, 3)
				look(t, t.Context(), super)
				if r := deploy(domain.ModeAsync, 3); r.Faulted == nil || r.Faulted.Count != 1 {
					t.Fatalf("faulted are %+v", r.Faulted)
				}
				isInline(hostile, from == domain.ModeInline)
				document(hostile, appendOne(hostile, 7), 0, 22)
				document(quiet, appendOne(quiet, 2), 3, 5)
				if r := deploy(to, 2); r.Faulted != nil {
					t.Fatalf("faulted are %+v", r.Faulted)
				}
				isInline(hostile, to == domain.ModeInline)
				document(hostile, appendOne(hostile, 7), 2, 29)
				document(quiet, appendOne(quiet, 2), 2, 7)
				look(t, t.Context(), super)
				if left, err := v.rebuilds.LeftBehind(t.Context(), id); err != nil || len(left) != 0 {
					t.Errorf("left behind are %+v, %v", left, err)
				}
			})
		}
	}
}
