package rebuild_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/rebuild"
)

// parking is sums with onError park, and a fault at the position.
func parking(times int, faultAt string) domain.Definition {
	d := sums(times)
	d.OnError = domain.OnErrorPark
	if faultAt != "" {
		d.On["Add"] = "event.position == " + faultAt + " ? {'a': 1 / 0} : " + d.On["Add"]
	}
	return d
}

// A rebuild may park what the live build has parked as well, but not what the live build folds.
func TestARebuildBringsNoNewFaults(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	v.work(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 200)
	d, err := v.rebuilds.Deploy(t.Context(), domain.Everyone, parking(1, "50"), "test", false)
	if err != nil {
		t.Fatal(err)
	}
	id := d.Projection.ProjectionID
	v.reached200(t, tenant, id)
	same := v.ended(t, v.start(t, id, rebuild.Request{}))
	if same.State != domain.RebuildSwapped || same.Difference == nil || same.Difference.Changed != 0 || same.Difference.New != 0 || same.Difference.Gone != 0 {
		t.Fatalf("the rebuild by the same definition is %+v, its difference %+v", same, same.Difference)
	}
	worse := parking(1, "61")
	r := v.ended(t, v.start(t, id, rebuild.Request{Definition: &worse}))
	if r.State != domain.RebuildFailed || !strings.Contains(r.Error, "event 61") || !strings.Contains(r.Error, tenant.String()) {
		t.Fatalf("the rebuild that parks another document is %+v", r)
	}
	better := parking(1, "")
	if r = v.ended(t, v.start(t, id, rebuild.Request{Definition: &better})); r.State != domain.RebuildSwapped {
		t.Fatalf("the rebuild that parks nothing is %+v", r)
	}
	v.mustBe(t, tenant, 1)
}

// reached200 waits until the live build has reached position 200.
func (v *service) reached200(t *testing.T, tenant domain.TenantID, id domain.ProjectionID) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		p, err := v.store.Projection(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if at, err := v.drivers["default"].Checkpoint(t.Context(), p.LiveBuild(), tenant); err != nil || at >= 200 {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		<-tick.C
	}
}

// A rebuild skips the events that its definition skips.
func TestRebuildSkipsSkippedEvents(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	v.work(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 200)
	faulty := sums(1)
	faulty.On["Add"] = "event.position == 50 ? {'a': 1 / 0} : " + faulty.On["Add"]
	d, err := v.rebuilds.Deploy(t.Context(), tenant, faulty, "test", false)
	if err != nil {
		t.Fatal(err)
	}
	id := d.Projection.ProjectionID
	if r := v.ended(t, v.start(t, id, rebuild.Request{})); r.State != domain.RebuildFailed || !strings.Contains(r.Error, "event 50") {
		t.Fatalf("before it is skipped: %+v", r)
	}
	event, err := v.store.ReadLog(t.Context(), tenant, domain.LogQuery{From: 50, To: 50, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	skip := domain.SkippedEvent{ProjectionID: id, Tenant: tenant, Version: 1, Position: 50, EventID: event[0].ID, Reason: "test", By: "test"}
	if _, err := v.store.PutSkipped(t.Context(), skip); err != nil {
		t.Fatal(err)
	}
	if r := v.ended(t, v.start(t, id, rebuild.Request{})); r.State != domain.RebuildSwapped || r.Documents != 10 {
		t.Fatalf("after it was skipped: %+v", r)
	}
}

// If a process dies after it has created the table of a shared projection, and before it has created the projection,
// the table is found and dropped.
func TestAnnouncedTableOfAFailedCreateIsDropped(t *testing.T) {
	t.Parallel()
	v := newService(t)
	build := domain.Build{ProjectionID: domain.ProjectionID{Owner: domain.Everyone, Name: "never"}, Database: "default"}
	var err error
	if build.Number, err = v.store.NextBuild(t.Context(), domain.Everyone); err != nil {
		t.Fatal(err)
	}
	if err := v.store.AnnounceBuild(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	if err := v.drivers["default"].CreateTemporaryTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	id := v.deployed(t, domain.Everyone)
	if _, err := v.db.Pool(t, "postgres", 1).Exec(t.Context(), "update manifold.retired_builds set drop_at = now()"); err != nil {
		t.Fatal(err)
	}
	if err := v.rebuilds.DropRetired(t.Context()); err != nil {
		t.Fatal(err)
	}
	tenant := v.tenant(t)
	if _, err := v.drivers["default"].Checkpoint(t.Context(), build, tenant); !errors.Is(err, drivers.ErrNoTable) {
		t.Errorf("the table is still there: %v", err)
	}
	p, err := v.store.Projection(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.drivers["default"].Checkpoint(t.Context(), p.LiveBuild(), tenant); err != nil {
		t.Errorf("the table of a projection that is there is gone: %v", err)
	}
}
