package rebuild_test

import (
	"errors"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/rebuild"
)

// A rollback restores the old documents and their definition, with everything appended since. It folds nothing twice,
// and can itself be rolled back.
func TestRollback(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]bool{"shared": true, "own": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newService(t)
			v.follow(t)
			v.work(t)
			tenant := v.tenant(t)
			owner := tenant
			if shared {
				owner = domain.Everyone
			}
			v.append(t, tenant, 500)
			id := v.deployed(t, owner, tenant)
			before := v.live(t, tenant, id)
			changed := sums(2)
			changed.Database = "elsewhere"
			r := v.ended(t, v.start(t, id, rebuild.Request{Definition: &changed}))
			v.append(t, tenant, 50)
			v.mustBe(t, tenant, 2)

			back, err := v.rebuilds.Rollback(t.Context(), id, r.ID, "somebody", false)
			if err != nil || back.RollbackOf != r.ID || back.Build != before || back.By != "somebody" {
				t.Fatalf("the rollback is %+v, %v", back, err)
			}
			if back = v.ended(t, back); back.State != domain.RebuildSwapped || back.EventsDone != 550 || back.Previous.Build != r.Build {
				t.Fatalf("the rollback is %+v", back)
			}
			if r, err = v.rebuilds.Get(t.Context(), id, r.ID); err != nil || r.State != domain.RebuildRolledBack {
				t.Errorf("what was undone is %+v, %v", r, err)
			}
			v.append(t, tenant, 50)
			v.mustBe(t, tenant, 1)
			if p, err := v.store.Projection(t.Context(), id); err != nil || p.Build != before || p.Version != 3 || p.Definition.Database != "default" {
				t.Errorf("the projection is %+v, %v", p, err)
			}
			versions, err := v.store.ProjectionVersions(t.Context(), id, 10)
			if err != nil || len(versions) != 3 || versions[0].Cause != domain.VersionRolledBack || versions[0].By != "somebody" || versions[0].Rebuild != back.ID {
				t.Errorf("its versions are %+v, %v", versions, err)
			}
			if _, err := v.rebuilds.Rollback(t.Context(), id, r.ID, "somebody", false); !domain.IsCode(err, domain.CodeConflict) {
				t.Errorf("once more: %v", err)
			}
			again, err := v.rebuilds.Rollback(t.Context(), id, back.ID, "somebody", false)
			if err != nil {
				t.Fatal(err)
			}
			if again = v.ended(t, again); again.State != domain.RebuildSwapped || again.Build != r.Build {
				t.Fatalf("the rollback of the rollback is %+v", again)
			}
			v.append(t, tenant, 50)
			v.mustBe(t, tenant, 2)
		})
	}
}

// A rollback is refused if the rebuild was not swapped, if another build has gone live since, or if the old build is
// being dropped. A cancelled rollback leaves the live and the old documents as they are.
func TestRollbackRefused(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 100)
	id := v.deployed(t, domain.Everyone, tenant)
	stop := v.work(t)
	changed := sums(2)
	first := v.ended(t, v.start(t, id, rebuild.Request{Definition: &changed}))
	second := v.ended(t, v.start(t, id, rebuild.Request{}))
	stop()
	refused := func(what string, undone domain.RebuildID, code domain.Code) {
		t.Helper()
		if r, err := v.rebuilds.Rollback(t.Context(), id, undone, "test", false); !domain.IsCode(err, code) {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
	refused("something else went live", first.ID, domain.CodeConflict)
	refused("there is no such", domain.NewRebuildID(), domain.CodeNotFound)
	back, err := v.rebuilds.Rollback(t.Context(), id, second.ID, "test", false)
	if err != nil {
		t.Fatal(err)
	}
	if retired, err := v.store.RetiredBuilds(t.Context(), time.Now().Add(time.Hour)); err != nil || len(retired) != 1 {
		t.Errorf("while it is rolled back to, the build is on the list: %+v, %v", retired, err)
	}
	refused("a rollback is under way", second.ID, domain.CodeRebuildRunning)
	if _, err := v.rebuilds.Cancel(t.Context(), id, back.ID); err != nil {
		t.Fatal(err)
	}
	stop = v.work(t)
	if back = v.ended(t, back); back.State != domain.RebuildCancelled {
		t.Fatalf("the rollback is %+v", back)
	}
	stop()
	refused("it was cancelled", back.ID, domain.CodeConflict)
	v.append(t, tenant, 10)
	v.mustBe(t, tenant, 2)

	// The dropper says first what it is about to drop.
	old := domain.Build{ProjectionID: id, Number: second.Previous.Build, Database: "default"}
	if ok, err := v.store.MarkDropping(t.Context(), old); err != nil || ok {
		t.Fatalf("taken before its time: %v, %v", ok, err)
	}
	pool := v.db.Pool(t, "postgres", 1)
	if _, err := pool.Exec(t.Context(), "update manifold.retired_builds set drop_at = now()"); err != nil {
		t.Fatal(err)
	}
	if ok, err := v.store.MarkDropping(t.Context(), old); err != nil || !ok {
		t.Fatalf("taken: %v, %v", ok, err)
	}
	refused("it is being dropped", second.ID, domain.CodeConflict)
	if err := v.rebuilds.DropRetired(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := v.drivers["default"].Checkpoint(t.Context(), old, tenant); !errors.Is(err, drivers.ErrNoTable) {
		t.Errorf("the old table is still there: %v", err)
	}
	refused("it is gone", second.ID, domain.CodeConflict)
}

// A rebuild for some tenants can be rolled back: they get their previous builds again.
func TestRollbackForSomeTenants(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	v.work(t)
	one, two := v.tenant(t), v.tenant(t)
	for _, tenant := range []domain.TenantID{one, two} {
		v.append(t, tenant, 200)
	}
	id := v.deployed(t, domain.Everyone, one, two)
	base := v.live(t, one, id)
	first := v.ended(t, v.start(t, id, only(one, two)))
	check := func(when string, lives ...int64) {
		t.Helper()
		for i, tenant := range []domain.TenantID{one, two} {
			v.append(t, tenant, 20)
			v.mustBe(t, tenant, 1)
			if live := v.live(t, tenant, id); live != lives[i] {
				t.Errorf("%s: live is %d, want %d", when, live, lives[i])
			}
		}
	}
	check("after the first", first.Build, first.Build)
	second := v.ended(t, v.start(t, id, only(one)))
	check("after the second", second.Build, first.Build)
	if _, err := v.rebuilds.Rollback(t.Context(), id, first.ID, "test", false); !domain.IsCode(err, domain.CodeConflict) {
		t.Errorf("one of its tenants has something else by now: %v", err)
	}
	undo := func(r domain.Rebuild) {
		t.Helper()
		back, err := v.rebuilds.Rollback(t.Context(), id, r.ID, "test", false)
		if err != nil {
			t.Fatal(err)
		}
		if back = v.ended(t, back); back.State != domain.RebuildSwapped {
			t.Fatalf("the rollback is %+v", back)
		}
	}
	undo(second)
	check("after its rollback", first.Build, first.Build)
	undo(first)
	check("after both rollbacks", base, base)

	// Tenants that come from different builds cannot go back by one rebuild.
	mine := v.ended(t, v.start(t, id, only(one)))
	both := v.ended(t, v.start(t, id, only(one, two)))
	check("after different ones", both.Build, both.Build)
	if mine.State != domain.RebuildSwapped || both.Previous.Build != 0 {
		t.Fatalf("the rebuild is %+v", both)
	}
	if _, err := v.rebuilds.Rollback(t.Context(), id, both.ID, "test", false); !domain.IsCode(err, domain.CodeConflict) {
		t.Errorf("with tenants from different builds: %v", err)
	}

	// A full swap ends tenant builds, and its rollback does not bring them back: nobody followed them.
	all := v.ended(t, v.start(t, id, rebuild.Request{}))
	check("after one for all", all.Build, all.Build)
	undo(all)
	check("after its rollback", base, base)
}

// Workers are killed at any moment of a rollback; the next one continues.
func TestRollbackSurvivesKilledWorkers(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	tenants := []domain.TenantID{v.tenant(t), v.tenant(t)}
	for _, tenant := range tenants {
		v.append(t, tenant, 400)
	}
	id := v.deployed(t, domain.Everyone, tenants...)
	stop := v.work(t)
	changed := sums(2)
	r := v.ended(t, v.start(t, id, rebuild.Request{Definition: &changed}))
	stop()
	for round := range 4 {
		for _, tenant := range tenants {
			v.append(t, tenant, 100)
		}
		back, err := v.rebuilds.Rollback(t.Context(), id, r.ID, "test", false)
		if err != nil {
			t.Fatal(err)
		}
		for dies := 4 + 21*round; ; dies += 40 {
			v.dies(t, dies, back, rebuild.Config{StaleAfter: 300 * time.Millisecond, Limits: projection.Limits{Events: 50, Bytes: 1 << 20, DocumentBytes: 4 << 10}}, func() { v.append(t, tenants[round%2], 15) })
			now, err := v.rebuilds.Get(t.Context(), id, back.ID)
			if err != nil {
				t.Fatal(err)
			}
			if now.State == domain.RebuildSwapped {
				break
			}
			if now.State.Ended() {
				t.Fatalf("the rollback is %+v", now)
			}
		}
		for _, tenant := range tenants {
			v.mustBe(t, tenant, int64(1+round%2))
		}
		r = back
	}
}
