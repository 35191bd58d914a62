package rebuild_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/rebuild"
)

// A rebuild over removed events is refused unless the request accepts the loss. Then its documents are folded from the
// remaining events, and the rebuild and the projection report what is missing, for the tenants concerned.
func TestRebuildAfterRemovedEvents(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprintf("shared %v", shared), func(t *testing.T) {
			t.Parallel()
			v := newService(t)
			v.follow(t)
			v.work(t)
			tenant, whole := v.tenant(t), v.tenant(t)
			owner := tenant
			if shared {
				owner = domain.Everyone
			}
			v.append(t, tenant, 500)
			v.append(t, whole, 50)
			id := v.deployed(t, owner, tenant)
			before := v.got(t, tenant, 500)
			v.db.Remove(t, tenant, "x", 300, 7, 100)
			lacks := []domain.Loss{{Category: "x", RemovedTo: 300}}

			changed := sums(2)
			var named domain.RebuildOptions
			if shared { // a rebuild for all leaves the tenant behind
				named.Tenants = []domain.TenantID{tenant}
			}
			dryRun := named
			dryRun.DryRun = true
			for _, refused := range []rebuild.Request{{RebuildOptions: named}, {RebuildOptions: named, Definition: &changed}, {RebuildOptions: dryRun}} {
				if _, err := v.rebuilds.Start(t.Context(), id, refused); !domain.IsCode(err, domain.CodeEventsRemoved) {
					t.Fatalf("%+v: %v", refused, err)
				}
			}
			if !shared {
				if _, err := v.rebuilds.Deploy(t.Context(), owner, changed, "test", false); !domain.IsCode(err, domain.CodeEventsRemoved) {
					t.Fatalf("a deployment: %v", err)
				}
			}
			if rebuilds, err := v.rebuilds.List(t.Context(), id); err != nil || len(rebuilds) > 0 {
				t.Fatalf("what was refused is there: %+v, %v", rebuilds, err)
			}
			if shared { // for a tenant of which nothing is gone there is nothing to accept
				r := v.ended(t, v.start(t, id, rebuild.Request{RebuildOptions: domain.RebuildOptions{Tenants: []domain.TenantID{whole}}}))
				if r.State != domain.RebuildSwapped || len(r.Loss) > 0 {
					t.Fatalf("it is %+v", r)
				}
				v.mustBe(t, whole, 1)
			}
			dry := v.ended(t, v.start(t, id, rebuild.Request{RebuildOptions: domain.RebuildOptions{DryRun: true, AcceptLoss: true}}))
			if dry.State != domain.RebuildReported || !slices.Equal(dry.Loss, lacks) {
				t.Fatalf("a dry run is %+v", dry)
			}
			if got := v.got(t, tenant, 500); fmt.Sprint(got) != fmt.Sprint(before) {
				t.Fatalf("the live documents are %v; they were %v", got, before)
			}
			d, err := v.rebuilds.Deploy(t.Context(), owner, changed, "test", true)
			if err != nil {
				t.Fatal(err)
			}
			r := v.ended(t, *d.Rebuild)
			if r.State != domain.RebuildSwapped || !slices.Equal(r.Loss, lacks) || !r.AcceptLoss || r.EventsDone < 202 {
				t.Fatalf("the rebuild is %+v", r)
			}
			v.append(t, tenant, 20)
			v.mustBe(t, tenant, 2)
			for of, want := range map[domain.TenantID][]domain.Loss{tenant: lacks, whole: nil} {
				if !shared && of == whole {
					continue
				}
				status, err := v.catalog.Status(t.Context(), of, id.Name)
				if err != nil || !slices.Equal(status.Loss, want) {
					t.Errorf("the projection lacks %v, %v; want %v", status.Loss, err, want)
				}
			}

			// Back to the documents from before, which have seen all that is gone: nothing is lost by that.
			back, err := v.rebuilds.Rollback(t.Context(), id, r.ID, "test", false)
			if err != nil {
				t.Fatal(err)
			}
			if back = v.ended(t, back); back.State != domain.RebuildSwapped || len(back.Loss) > 0 {
				t.Fatalf("the rollback is %+v", back)
			}
			status, err := v.catalog.Status(t.Context(), tenant, id.Name)
			if err != nil || len(status.Loss) > 0 {
				t.Errorf("after the rollback it lacks %v, %v", status.Loss, err)
			}
			after := v.got(t, tenant, 520)
			if sum := after["key 1"]; sum.Events != before["key 1"].Events+2 || sum.Times != 1 {
				t.Errorf("after the rollback a document is %+v; it was %+v", sum, before["key 1"])
			}
		})
	}
}

// A rollback needs the events that were appended since the old build was last live.
func TestRollbackAfterRemovedEvents(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	v.work(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 100)
	id := v.deployed(t, tenant, tenant)
	changed := sums(2)
	r := v.ended(t, v.start(t, id, rebuild.Request{Definition: &changed}))
	v.append(t, tenant, 100)
	v.mustBe(t, tenant, 2)
	v.db.Remove(t, tenant, "x", 150)
	if _, err := v.rebuilds.Rollback(t.Context(), id, r.ID, "test", false); !domain.IsCode(err, domain.CodeEventsRemoved) {
		t.Fatalf("without accepting the loss: %v", err)
	}
	back, err := v.rebuilds.Rollback(t.Context(), id, r.ID, "test", true)
	if err != nil {
		t.Fatal(err)
	}
	if back = v.ended(t, back); back.State != domain.RebuildSwapped || !slices.Equal(back.Loss, []domain.Loss{{Category: "x", RemovedTo: 150}}) {
		t.Fatalf("the rollback is %+v", back)
	}
	if sum := v.got(t, tenant, 200)["key 1"]; sum.Events != 15 || sum.Times != 1 {
		t.Errorf("a document is %+v", sum)
	}
	status, err := v.catalog.Status(t.Context(), tenant, id.Name)
	if err != nil || len(status.Loss) != 1 {
		t.Errorf("it lacks %v, %v", status.Loss, err)
	}
}

// Announced removals count before they happen. The worker finds those that are announced after the rebuild was
// requested.
func TestRebuildSeesAnnouncedRemovals(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 100)
	id := v.deployed(t, tenant, tenant)
	super := v.db.Pool(t, pgtest.RoleSuperuser, 1)
	announce := func(upTo int64) {
		t.Helper()
		_, err := super.Exec(t.Context(), `
			insert into manifold.retention_floors (tenant_id, category, announced_to, run_id) values ($1, 'x', $2, gen_random_uuid())
			on conflict (tenant_id, category) do update set announced_to = $2`, tenant, upTo)
		if err != nil {
			t.Fatal(err)
		}
	}
	announce(30)
	if _, err := v.rebuilds.Start(t.Context(), id, rebuild.Request{}); !domain.IsCode(err, domain.CodeEventsRemoved) {
		t.Fatalf("it is started: %v", err)
	}
	announce(0) // taken back
	r := v.start(t, id, rebuild.Request{})
	announce(30)
	v.work(t)
	if r = v.ended(t, r); r.State != domain.RebuildFailed || r.Error == "" {
		t.Fatalf("it is %+v", r)
	}
	v.mustBe(t, tenant, 1)
	r = v.ended(t, v.start(t, id, rebuild.Request{RebuildOptions: domain.RebuildOptions{AcceptLoss: true}}))
	if r.State != domain.RebuildSwapped || !slices.Equal(r.Loss, []domain.Loss{{Category: "x", RemovedTo: 30}}) {
		t.Fatalf("it is %+v", r)
	}
	v.mustBe(t, tenant, 1)
}

// Retention in one tenant does not block rebuilds of a shared projection. That tenant keeps its old build, and the
// operator sees why, until a rebuild accepts the loss.
func TestRemovedEventsLeaveOneTenantBehind(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	v.work(t)
	hostile, quiet := v.tenant(t), v.tenant(t)
	v.append(t, hostile, 500)
	v.append(t, quiet, 50)
	id := v.deployed(t, domain.Everyone, hostile, quiet)
	old := v.live(t, hostile, id)
	before := v.got(t, hostile, 500)
	v.db.Remove(t, hostile, "x", 300)

	second := sums(2)
	none := rebuild.Request{Definition: &second, MaxFaulted: new(0)}
	if _, err := v.rebuilds.Start(t.Context(), id, none); !domain.IsCode(err, domain.CodeEventsRemoved) {
		t.Fatalf("with MaxFaulted 0: %v", err)
	}
	d, err := v.rebuilds.Deploy(t.Context(), domain.Everyone, second, "test", false)
	if err != nil {
		t.Fatal(err)
	}
	r := v.ended(t, *d.Rebuild)
	if r.State != domain.RebuildSwapped || r.Faulted == nil || r.Faulted.Count != 1 || len(r.Loss) > 0 {
		t.Fatalf("the rebuild is %+v, with %+v", r, r.Faulted)
	}
	if fault := r.Faulted.First[0]; fault.Tenant != hostile || fault.Position != 0 || !strings.Contains(fault.Reason, "retention has removed events") {
		t.Errorf("the fault is %+v", fault)
	}
	v.mustBe(t, quiet, 2)
	if got := v.got(t, hostile, 500); v.live(t, hostile, id) != old || fmt.Sprint(got) != fmt.Sprint(before) {
		t.Fatalf("live is build %d with %v", v.live(t, hostile, id), got)
	}
	if left, err := v.rebuilds.LeftBehind(t.Context(), id); err != nil || len(left) != 1 || left[0].Tenant != hostile {
		t.Errorf("left behind are %+v, %v", left, err)
	}
	v.append(t, hostile, 10)
	if got := v.got(t, hostile, 510)["key 1"]; got.Times != 1 || got.Events != before["key 1"].Events+1 {
		t.Errorf("after another event its document is %+v; it was %+v", got, before["key 1"])
	}

	accept := only(hostile)
	if _, err := v.rebuilds.Start(t.Context(), id, accept); !domain.IsCode(err, domain.CodeEventsRemoved) {
		t.Fatalf("for that tenant alone: %v", err)
	}
	accept.AcceptLoss = true
	if r = v.ended(t, v.start(t, id, accept)); r.State != domain.RebuildSwapped || r.Faulted != nil || len(r.Loss) != 1 {
		t.Fatalf("the rebuild that accepts the loss is %+v", r)
	}
	v.mustBe(t, hostile, 2)
	if left, err := v.rebuilds.LeftBehind(t.Context(), id); err != nil || len(left) != 0 {
		t.Errorf("left behind are %+v, %v", left, err)
	}
}

// When a build is rolled back, a tenant whose events were removed since the old build was live stays on the newer one.
func TestARollbackLeavesATenantWithRemovedEventsBehind(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	v.work(t)
	hostile, quiet := v.tenant(t), v.tenant(t)
	v.append(t, hostile, 100)
	v.append(t, quiet, 100)
	id := v.deployed(t, domain.Everyone, hostile, quiet)
	changed := sums(2)
	r := v.ended(t, v.start(t, id, rebuild.Request{Definition: &changed}))
	v.append(t, hostile, 100)
	v.append(t, quiet, 100)
	v.mustBe(t, hostile, 2)
	before := v.got(t, hostile, 200)
	v.db.Remove(t, hostile, "x", 150)
	back, err := v.rebuilds.Rollback(t.Context(), id, r.ID, "test", false)
	if err != nil {
		t.Fatal(err)
	}
	back = v.ended(t, back)
	if back.State != domain.RebuildSwapped || back.Faulted == nil || back.Faulted.Count != 1 || back.Faulted.First[0].Tenant != hostile {
		t.Fatalf("the rollback is %+v, with %+v", back, back.Faulted)
	}
	v.mustBe(t, quiet, 1)
	if got := v.got(t, hostile, 200); v.live(t, hostile, id) != r.Build || fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("live is build %d with %v; it was %v", v.live(t, hostile, id), got, before)
	}
}

// If retention announces or removes a tenant's events after the request, the worker leaves that tenant behind. It fails
// if no tenant with events is left.
func TestEventsRemovedAfterTheRequest(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	hostile, quiet := v.tenant(t), v.tenant(t)
	v.append(t, hostile, 100)
	v.append(t, quiet, 50)
	id := v.deployed(t, domain.Everyone, hostile, quiet)
	some := v.start(t, id, rebuild.Request{})
	v.db.Remove(t, hostile, "x", 30)
	stop := v.work(t)
	if some = v.ended(t, some); some.State != domain.RebuildSwapped || some.Faulted == nil || some.Faulted.Count != 1 {
		t.Fatalf("the rebuild is %+v, with %+v", some, some.Faulted)
	}
	v.mustBe(t, quiet, 1)
	stop()
	all := v.start(t, id, rebuild.Request{})
	v.db.Remove(t, quiet, "x", 30)
	v.work(t)
	if all = v.ended(t, all); all.State != domain.RebuildFailed || !strings.Contains(all.Error, "none of the 2 tenants") || !strings.Contains(all.Error, "acceptLoss") {
		t.Fatalf("the rebuild with no tenant left is %+v", all)
	}
}

// A tenant whose old documents have vanished has nothing to stay on. It gets documents of the remaining events, and its
// state says so.
func TestRemovedEventsOfATenantWhoseTableVanished(t *testing.T) {
	t.Parallel()
	v := newService(t)
	hostile, quiet := v.tenant(t), v.tenant(t)
	v.append(t, hostile, 100)
	v.append(t, quiet, 50)
	id := v.deployed(t, domain.Everyone)
	p, err := v.store.Projection(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	v.db.Remove(t, hostile, "x", 30)
	if err := v.drivers["default"].DropTable(t.Context(), p.LiveBuild()); err != nil {
		t.Fatal(err)
	}
	v.work(t)
	r := v.ended(t, v.start(t, id, rebuild.Request{}))
	if r.State != domain.RebuildSwapped || r.Faulted == nil || r.Faulted.Count != 1 {
		t.Fatalf("the rebuild is %+v, with %+v", r, r.Faulted)
	}
	v.follow(t)
	v.mustBe(t, quiet, 1)
	v.mustBe(t, hostile, 1)
	status, err := v.catalog.Status(t.Context(), hostile, "sums")
	if err != nil || !slices.Equal(status.Loss, []domain.Loss{{Category: "x", RemovedTo: 30}}) {
		t.Errorf("it lacks %v, %v", status.Loss, err)
	}
}
