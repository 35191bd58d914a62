package rebuild_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/rebuild"
)

// A rebuild over what is gone is refused, unless that is accepted: then its documents are made of what is left, and it says what is
// missing; so does the projection, for the tenants whom it concerns.
func TestRebuildOverWhatIsGone(t *testing.T) {
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
			for what, err := range map[string]error{
				"a rebuild":    func() error { _, err := v.rebuilds.Start(t.Context(), id, rebuild.Request{}); return err }(),
				"a deployment": func() error { _, err := v.rebuilds.Deploy(t.Context(), owner, changed, "test", false); return err }(),
				"a dry run": func() error {
					_, err := v.rebuilds.Start(t.Context(), id, rebuild.Request{RebuildOptions: domain.RebuildOptions{DryRun: true}})
					return err
				}(),
			} {
				if !isCode(err, domain.CodeEventsRemoved) {
					t.Fatalf("%s: %v", what, err)
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
				t.Errorf("behind the rollback it lacks %v, %v", status.Loss, err)
			}
			after := v.got(t, tenant, 520)
			if sum := after["key 1"]; sum.Events != before["key 1"].Events+2 || sum.Times != 1 {
				t.Errorf("behind the rollback a document is %+v; it was %+v", sum, before["key 1"])
			}
		})
	}
}

// A rollback needs what came while the old build rested.
func TestRollbackOverWhatIsGone(t *testing.T) {
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
	if _, err := v.rebuilds.Rollback(t.Context(), id, r.ID, "test", false); !isCode(err, domain.CodeEventsRemoved) {
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

// What is announced counts, though nothing is gone yet; and what is announced only when the rebuild is there already, its worker
// finds.
func TestRebuildSeesWhatIsAnnounced(t *testing.T) {
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
	if _, err := v.rebuilds.Start(t.Context(), id, rebuild.Request{}); !isCode(err, domain.CodeEventsRemoved) {
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
