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

func only(tenants ...domain.TenantID) rebuild.Request {
	return rebuild.Request{RebuildOptions: domain.RebuildOptions{Tenants: tenants}}
}

// live returns the number of the build that a tenant's readers see.
func (v *service) live(t *testing.T, tenant domain.TenantID, id domain.ProjectionID) int64 {
	t.Helper()
	p, err := v.store.LiveProjection(t.Context(), tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	return p.Build
}

// A rebuild for some tenants gives them a separate build, which the runner follows. A swap for all ends it. A build is
// dropped when no tenant has it any longer.
func TestRebuildForSomeTenants(t *testing.T) {
	t.Parallel()
	base := newService(t)
	v := base.process(rebuild.Config{Keep: time.Nanosecond})
	v.follow(t)
	v.work(t)
	one, two, three := v.tenant(t), v.tenant(t), v.tenant(t)
	for _, tenant := range []domain.TenantID{one, two, three} {
		v.append(t, tenant, 300)
	}
	id := v.deployed(t, domain.Everyone, one, two, three)
	before := v.live(t, three, id)
	// One of their documents was damaged manually.
	broken := domain.Build{ProjectionID: id, Number: before, Database: "default"}
	if err := v.drivers["default"].Save(t.Context(), broken, one, drivers.Batch{From: 300, To: 301, Upserts: []domain.Document{{ID: "key 1", Version: 301, Data: []byte(`{"times": 9}`)}}}); err != nil {
		t.Fatal(err)
	}
	r := v.ended(t, v.start(t, id, only(one, two)))
	if r.State != domain.RebuildSwapped || r.Previous == nil || r.Previous.Build != before || r.Documents != 20 {
		t.Fatalf("the rebuild is %+v", r)
	}
	if v.live(t, one, id) != r.Build || v.live(t, two, id) != r.Build || v.live(t, three, id) != before {
		t.Fatalf("live are %d, %d, %d", v.live(t, one, id), v.live(t, two, id), v.live(t, three, id))
	}
	for _, tenant := range []domain.TenantID{one, two, three} {
		v.append(t, tenant, 10)
		v.mustBe(t, tenant, 1)
	}
	page, more, err := v.rebuilds.Tenants(t.Context(), id, r.ID, false, domain.TenantID{}, 1)
	if err != nil || !more || len(page) != 1 || !page[0].Swapped || page[0].Head != 310 {
		t.Fatalf("its tenants: %+v, %v, %v", page, more, err)
	}
	if page, more, err = v.rebuilds.Tenants(t.Context(), id, r.ID, false, page[0].Tenant, 1); err != nil || more || len(page) != 1 || !page[0].Swapped {
		t.Fatalf("its second page: %+v, %v, %v", page, more, err)
	}

	// One of them once more: the first build stays for the other one.
	again := v.ended(t, v.start(t, id, only(one)))
	if again.State != domain.RebuildSwapped || again.Previous.Build != r.Build {
		t.Fatalf("the rebuild is %+v", again)
	}
	if err := v.rebuilds.DropRetired(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []domain.TenantID{one, two} {
		v.append(t, tenant, 10)
		v.mustBe(t, tenant, 1)
	}

	// A rebuild for all ends both, and their tables go.
	changed := sums(2)
	all := v.ended(t, v.start(t, id, rebuild.Request{Definition: &changed}))
	if all.State != domain.RebuildSwapped || all.Difference == nil || all.Difference.Changed == 0 {
		t.Fatalf("the rebuild is %+v", all)
	}
	for _, tenant := range []domain.TenantID{one, two, three} {
		v.append(t, tenant, 10)
		v.mustBe(t, tenant, 2)
	}
	for _, gone := range []domain.Rebuild{r, again} {
		build := gone.NewBuild()
		v.until(t, gone, "dropped", func(domain.Rebuild) bool {
			_, err := v.drivers["default"].Checkpoint(t.Context(), build, one)
			return errors.Is(err, drivers.ErrNoTable)
		})
	}
	if left, err := v.store.TenantBuildsOf(t.Context(), id); err != nil || len(left) != 0 {
		t.Errorf("left are %+v, %v", left, err)
	}
}

// Workers are killed at any moment of rebuilds for some tenants, also between two tenants. The next one continues, and
// readers always see complete builds.
func TestRebuildForSomeTenantsSurvivesKilledWorkers(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	tenants := []domain.TenantID{v.tenant(t), v.tenant(t), v.tenant(t), v.tenant(t)}
	for _, tenant := range tenants {
		v.append(t, tenant, 600)
	}
	id := v.deployed(t, domain.Everyone, tenants...)
	for round := range 4 {
		r := v.start(t, id, only(tenants[:3]...))
		for dies := 5 + 33*round; ; dies += 50 {
			v.dies(t, dies, r, rebuild.Config{StaleAfter: 300 * time.Millisecond, Limits: projection.Limits{Events: 200, Bytes: 1 << 20, DocumentBytes: 4 << 10}}, func() { v.append(t, tenants[round%4], 15) })
			now, err := v.rebuilds.Get(t.Context(), id, r.ID)
			if err != nil {
				t.Fatal(err)
			}
			if now.State == domain.RebuildSwapped {
				break
			}
			if now.State.Ended() {
				t.Fatalf("the rebuild is %+v", now)
			}
		}
		for i, tenant := range tenants {
			v.mustBe(t, tenant, 1)
			if live := v.live(t, tenant, id); (live == r.Build) != (i < 3) {
				t.Errorf("live for tenant %d is build %d, the rebuild's is %d", i, live, r.Build)
			}
		}
	}
}

// A cancelled rebuild for some tenants leaves them as they were, and leaves nothing behind.
func TestCancelRebuildForSomeTenants(t *testing.T) {
	t.Parallel()
	base := newService(t)
	v := base.process(rebuild.Config{StaleAfter: time.Millisecond})
	v.follow(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 100)
	id := v.deployed(t, domain.Everyone, tenant)
	before := v.live(t, tenant, id)
	v.work(t)
	request := only(tenant)
	request.Manual = true
	r := v.start(t, id, request)
	v.state(t, r, domain.RebuildAwaitingApproval)
	if _, err := v.rebuilds.Cancel(t.Context(), id, r.ID); err != nil {
		t.Fatal(err)
	}
	if r = v.ended(t, r); r.State != domain.RebuildCancelled || v.live(t, tenant, id) != before {
		t.Fatalf("the rebuild is %+v", r)
	}
	v.until(t, r, "dropped", func(domain.Rebuild) bool {
		_, err := v.drivers["default"].Checkpoint(t.Context(), r.NewBuild(), tenant)
		return errors.Is(err, drivers.ErrNoTable)
	})
	v.append(t, tenant, 10)
	v.mustBe(t, tenant, 1)
}
