package rebuild_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/rebuild"
)

// state waits until a rebuild is in a state.
func (v *service) state(t *testing.T, r domain.Rebuild, state domain.RebuildState) domain.Rebuild {
	t.Helper()
	return v.until(t, r, string(state), func(now domain.Rebuild) bool { return now.State == state })
}

// until waits until a condition holds for a rebuild.
func (v *service) until(t *testing.T, r domain.Rebuild, what string, holds func(domain.Rebuild) bool) domain.Rebuild {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); ; {
		now, err := v.rebuilds.Get(t.Context(), r.ProjectionID, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if holds(now) {
			return now
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("the rebuild is not %s: %+v", what, now)
		}
	}
}

// deployed creates the projection sums(1), and waits until it has followed a tenant's log.
func (v *service) deployed(t *testing.T, owner domain.TenantID, tenants ...domain.TenantID) domain.ProjectionID {
	t.Helper()
	d, err := v.rebuilds.Deploy(t.Context(), owner, sums(1), "test", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, tenant := range tenants {
		v.mustBe(t, tenant, 1)
	}
	return d.Projection.ProjectionID
}

func (v *service) start(t *testing.T, id domain.ProjectionID, request rebuild.Request) domain.Rebuild {
	t.Helper()
	request.By = "test"
	r, err := v.rebuilds.Start(t.Context(), id, request)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A rebuild that waits for approval keeps following the logs, also with another worker, occupies no slot, and swaps
// once it is approved.
func TestApproval(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 200)
	id := v.deployed(t, tenant, tenant)
	w := v.process(rebuild.Config{Concurrent: 1})
	stop := w.work(t)
	changed := sums(2)
	r := v.start(t, id, rebuild.Request{Definition: &changed, RebuildOptions: domain.RebuildOptions{Manual: true}})
	r = v.state(t, r, domain.RebuildAwaitingApproval)
	if r.Difference == nil || r.Difference.Changed != 10 || r.Difference.Same != 0 || r.By != "test" || r.Approved || r.Documents != 10 {
		t.Errorf("the rebuild that waits is %+v", r)
	}
	// There is room for others.
	other, err := v.rebuilds.Deploy(t.Context(), tenant, named("others", 1), "test", false)
	if err != nil {
		t.Fatal(err)
	}
	if done := v.ended(t, v.start(t, other.Projection.ProjectionID, rebuild.Request{})); done.State != domain.RebuildSwapped {
		t.Fatalf("the other rebuild is %+v", done)
	}
	last := v.append(t, tenant, 50)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for at := int64(0); at < last; <-tick.C {
		if at, err = v.drivers["default"].Checkpoint(t.Context(), r.NewBuild(), tenant); err != nil {
			t.Fatal(err)
		}
	}
	v.mustBe(t, tenant, 1)
	stop()
	v.append(t, tenant, 50)
	if r, err = v.rebuilds.Approve(t.Context(), id, r.ID); err != nil || !r.Approved {
		t.Fatalf("approved: %+v, %v", r, err)
	}
	v.process(rebuild.Config{}).work(t)
	if r = v.ended(t, r); r.State != domain.RebuildSwapped || r.Previous == nil || r.Previous.Definition.On["Add"] != sums(1).On["Add"] {
		t.Fatalf("the rebuild is %+v", r)
	}
	v.mustBe(t, tenant, 2)
	if _, err := v.rebuilds.Approve(t.Context(), id, r.ID); !domain.IsCode(err, domain.CodeConflict) {
		t.Errorf("approving what has ended: %v", err)
	}
	p, err := v.catalog.Get(t.Context(), tenant, "sums")
	if err != nil || p.Version != 2 {
		t.Errorf("the projection is %+v, %v", p, err)
	}
}

func named(name string, times int) domain.Definition {
	d := sums(times)
	d.Name = name
	return d
}

// A rebuild may be approved before it asks for approval, and cancelled while it waits for approval.
func TestEarlyApprovalAndCancelWhileWaiting(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 100)
	id := v.deployed(t, tenant, tenant)
	manual := rebuild.Request{RebuildOptions: domain.RebuildOptions{Manual: true}}
	first := v.start(t, id, manual)
	if _, err := v.rebuilds.Approve(t.Context(), id, first.ID); err != nil {
		t.Fatal(err)
	}
	v.work(t)
	if r := v.ended(t, first); r.State != domain.RebuildSwapped {
		t.Fatalf("the rebuild is %+v", r)
	}
	second := v.start(t, id, manual)
	v.state(t, second, domain.RebuildAwaitingApproval)
	if _, err := v.rebuilds.Cancel(t.Context(), id, second.ID); err != nil {
		t.Fatal(err)
	}
	if r := v.ended(t, second); r.State != domain.RebuildCancelled {
		t.Fatalf("the rebuild is %+v", r)
	}
	auto := v.start(t, id, rebuild.Request{})
	if _, err := v.rebuilds.Approve(t.Context(), id, auto.ID); !domain.IsCode(err, domain.CodeConflict) {
		t.Errorf("approving what needs none: %v", err)
	}
	v.ended(t, auto)
	v.mustBe(t, tenant, 1)
}

// A paused rebuild does nothing until it is resumed, even when another worker starts. A throttled one does not exceed
// its rate.
func TestPauseAndThrottle(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 3000)
	id := v.deployed(t, tenant, tenant)
	stop := v.work(t)
	began := time.Now()
	r := v.start(t, id, rebuild.Request{RebuildOptions: domain.RebuildOptions{MaxEventsPerSecond: 500}})
	v.until(t, r, "under way", func(r domain.Rebuild) bool { return r.EventsDone > 0 && r.Worker != "" })
	if paused, err := v.rebuilds.Pause(t.Context(), id, r.ID); err != nil || !paused.Paused {
		t.Fatalf("paused: %+v, %v", paused, err)
	}
	rests := v.until(t, r, "given back", func(r domain.Rebuild) bool { return r.Worker == "" })
	if rests.State.Ended() || rests.EventsDone == 3000 {
		t.Fatalf("the rebuild that rests is %+v", rests)
	}
	stop()
	// Others have their turn in a process that has one place, and the paused one does not take it.
	w := v.process(rebuild.Config{Concurrent: 1})
	w.work(t)
	other, err := v.rebuilds.Deploy(t.Context(), tenant, named("others", 1), "test", false)
	if err != nil {
		t.Fatal(err)
	}
	v.ended(t, v.start(t, other.Projection.ProjectionID, rebuild.Request{}))
	still, err := v.rebuilds.Get(t.Context(), id, r.ID)
	if err != nil || still.Worker != "" || still.EventsDone != rests.EventsDone || !still.Paused {
		t.Fatalf("while it rests: %+v, %v", still, err)
	}
	if _, err := w.rebuilds.Resume(t.Context(), id, r.ID); err != nil {
		t.Fatal(err)
	}
	if r = v.ended(t, r); r.State != domain.RebuildSwapped || r.EventsDone != 3000 {
		t.Fatalf("the rebuild is %+v", r)
	}
	if took := time.Since(began); took < 3*time.Second {
		t.Errorf("3000 events at 500 in a second took %s", took)
	}
	for what, order := range map[string]error{
		"pause":  second(v.rebuilds.Pause(t.Context(), id, r.ID)),
		"resume": second(v.rebuilds.Resume(t.Context(), id, r.ID)),
	} {
		if !domain.IsCode(order, domain.CodeConflict) {
			t.Errorf("%s what has ended: %v", what, order)
		}
	}
	if _, err := v.rebuilds.Pause(t.Context(), id, domain.NewRebuildID()); !domain.IsCode(err, domain.CodeNotFound) {
		t.Errorf("pause what does not exist: %v", err)
	}
}

func second(_ domain.Rebuild, err error) error { return err }

// A paused rebuild can be cancelled.
func TestCancelPausedRebuild(t *testing.T) {
	t.Parallel()
	v := newService(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 10)
	id := v.deployed(t, tenant)
	r := v.start(t, id, rebuild.Request{})
	if _, err := v.rebuilds.Pause(t.Context(), id, r.ID); err != nil {
		t.Fatal(err)
	}
	v.work(t)
	if _, err := v.rebuilds.Cancel(t.Context(), id, r.ID); err != nil {
		t.Fatal(err)
	}
	if r = v.ended(t, r); r.State != domain.RebuildCancelled || r.EventsDone != 0 {
		t.Errorf("the rebuild is %+v", r)
	}
}

// A dry run reports, and leaves nothing behind.
func TestDryRun(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	v.work(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 100)
	for _, owner := range []domain.TenantID{domain.Everyone, tenant} {
		p := v
		id := domain.ProjectionID{Owner: owner, Name: "sums"}
		if owner == tenant {
			id.Name = "own"
		}
		if _, err := v.rebuilds.Deploy(t.Context(), owner, named(id.Name, 1), "test", false); err != nil {
			t.Fatal(err)
		}
		changed := named(id.Name, 1)
		changed.On["Add"] = strings.Replace(changed.On["Add"], "'times': 1", "'times': event.data.k == 'key 3' ? 7 : 1", 1)
		r := p.start(t, id, rebuild.Request{Definition: &changed, RebuildOptions: domain.RebuildOptions{DryRun: true}})
		r = p.ended(t, r)
		// How much of the live build is there to be compared depends on how far it has followed.
		if r.State != domain.RebuildReported || r.Documents != 10 || r.Difference == nil || r.Previous != nil {
			t.Fatalf("the dry run is %+v", r)
		}
		if n, err := v.drivers["default"].Count(t.Context(), r.NewBuild(), tenant, nil); n != 0 || owner == domain.Everyone && err == nil {
			// It is dropped right behind its end.
			v.until(t, r, "dropped", func(domain.Rebuild) bool {
				n, err := v.drivers["default"].Count(t.Context(), r.NewBuild(), tenant, nil)
				return n == 0 && (err == nil) == (owner == tenant)
			})
		}
		if p, err := v.store.Projection(t.Context(), id); err != nil || p.Build == r.Build || p.Version != 1 {
			t.Errorf("the projection is %+v, %v", p, err)
		}
	}
}

// Invalid requests are refused at once, with the place of the error.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	v := newService(t)
	tenant := v.tenant(t)
	own := v.deployed(t, tenant)
	shared, err := v.rebuilds.Deploy(t.Context(), domain.Everyone, named("all", 1), "test", false)
	if err != nil {
		t.Fatal(err)
	}
	changed, other := named("all", 2), named("all", 2)
	other.Database = "elsewhere"
	options := func(o domain.RebuildOptions) rebuild.Request { return rebuild.Request{RebuildOptions: o} }
	for _, c := range []struct {
		id      domain.ProjectionID
		request rebuild.Request
		code    domain.Code
		where   string
	}{
		{own, options(domain.RebuildOptions{Tenants: []domain.TenantID{tenant}}), domain.CodeInvalidRequest, "tenants"},
		{shared.Projection.ProjectionID, rebuild.Request{Database: "elsewhere", RebuildOptions: domain.RebuildOptions{Tenants: []domain.TenantID{tenant}}}, domain.CodeInvalidRequest, "tenants"},
		{shared.Projection.ProjectionID, options(domain.RebuildOptions{Tenants: []domain.TenantID{tenant, domain.NewTenantID()}}), domain.CodeInvalidRequest, "tenants[1]"},
		{shared.Projection.ProjectionID, options(domain.RebuildOptions{Tenants: []domain.TenantID{tenant, tenant}}), domain.CodeInvalidRequest, "tenants[1]"},
		{own, options(domain.RebuildOptions{MaxEventsPerSecond: -1}), domain.CodeInvalidRequest, "maxEventsPerSecond"},
		{own, options(domain.RebuildOptions{Keep: -time.Second}), domain.CodeInvalidRequest, "keep"},
		{own, options(domain.RebuildOptions{DryRun: true, Manual: true}), domain.CodeInvalidRequest, "approve"},
		{own, options(domain.RebuildOptions{Assert: []string{"true", "doc."}}), domain.CodeInvalidDefinition, "assertions[1]"},
		{own, rebuild.Request{Database: "nowhere"}, domain.CodeInvalidDefinition, "database"},
		{shared.Projection.ProjectionID, rebuild.Request{Definition: &other, Database: "default"}, domain.CodeInvalidRequest, "database"},
		{own, rebuild.Request{Definition: &changed}, domain.CodeInvalidRequest, "definition.name"},
	} {
		_, err := v.rebuilds.Start(t.Context(), c.id, c.request)
		if !domain.IsCode(err, c.code) || !strings.HasPrefix(err.Error(), c.where+": ") {
			t.Errorf("%+v: %v; want %s at %s", c.request, err, c.code, c.where)
		}
	}
	if all, err := v.rebuilds.List(t.Context(), own); err != nil || len(all) != 0 {
		t.Errorf("there are %+v, %v", all, err)
	}
}

// A change that does not affect documents needs no rebuild, and adds a version.
func TestDeployWithoutRebuild(t *testing.T) {
	t.Parallel()
	v := newService(t)
	tenant := v.tenant(t)
	v.deployed(t, tenant)
	changed := sums(1)
	changed.Assert = []string{"doc.sum >= 0"}
	d, err := v.rebuilds.Deploy(t.Context(), tenant, changed, "somebody", false)
	if err != nil || !d.Changed || d.Rebuild != nil || d.Projection.Version != 2 || len(d.Projection.Definition.Assert) != 1 || d.Projection.Build == 0 {
		t.Fatalf("deployed: %+v, %v", d, err)
	}
	v.start(t, d.Projection.ProjectionID, rebuild.Request{})
	if _, err := v.rebuilds.Deploy(t.Context(), tenant, sums(1), "somebody", false); !domain.IsCode(err, domain.CodeRebuildRunning) {
		t.Errorf("while a rebuild is under way: %v", err)
	}
}

// The assertions of a request are checked in addition to those of the definition.
func TestAssertionsOfARequest(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.work(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 100)
	id := v.deployed(t, tenant)
	r := v.start(t, id, rebuild.Request{RebuildOptions: domain.RebuildOptions{Assert: []string{"doc.events == 10", "doc.events < 10"}}})
	if r = v.ended(t, r); r.State != domain.RebuildFailed || !strings.Contains(r.Error, "doc.events < 10") {
		t.Errorf("the rebuild is %+v", r)
	}
}

// A rebuild yields to live work between any two batches, and asks whether appends are in progress.
func TestYield(t *testing.T) {
	t.Parallel()
	v := newService(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 2000)
	id := v.deployed(t, tenant)
	turn := make(chan struct{})
	var asked atomic.Bool
	appending := projection.NewPacing(func() time.Duration { asked.Store(true); return 0 })
	measured := time.Now().Add(200 * time.Millisecond) // it asks once it has something to measure
	w := v.process(rebuild.Config{Pacing: appending, Yield: func(ctx context.Context, database string) error {
		if database != "default" {
			t.Errorf("it waits for database %q", database)
		}
		<-time.After(time.Until(measured))
		select {
		case <-turn:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	w.work(t)
	r := v.start(t, id, rebuild.Request{})
	turns := 0
	for ; ; turns++ {
		now, err := v.rebuilds.Get(t.Context(), id, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		if now.State.Ended() {
			break
		}
		select {
		case turn <- struct{}{}:
		case <-time.After(50 * time.Millisecond): // it may have ended
		}
	}
	if r = v.ended(t, r); r.State != domain.RebuildSwapped || turns < 2 || !asked.Load() {
		t.Errorf("after %d turns the rebuild is %+v; asked for appends: %t", turns, r, asked.Load())
	}
}
