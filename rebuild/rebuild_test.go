package rebuild_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/rebuild"
)

func TestDeploy(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{true, false} {
		v := newService(t)
		v.follow(t)
		v.work(t)
		tenant := v.tenant(t)
		owner := tenant
		if shared {
			owner = domain.Everyone
		}
		v.append(t, tenant, 1000)
		d, err := v.rebuilds.Deploy(t.Context(), owner, sums(1), "test", false)
		if err != nil || !d.Created || d.Rebuild != nil {
			t.Fatalf("a new one: %+v, %v", d, err)
		}
		v.mustBe(t, tenant, 1)
		if d, err := v.rebuilds.Deploy(t.Context(), owner, sums(1), "test", false); err != nil || d.Created || d.Rebuild != nil {
			t.Fatalf("deployed a second time: %+v, %v", d, err)
		}
		// A changed one, in another database.
		changed := sums(2)
		changed.Database, changed.Indexes, changed.Assert = "elsewhere", []string{"times"}, []string{"doc.times == 2"}
		d, err = v.rebuilds.Deploy(t.Context(), owner, changed, "test", false)
		if err != nil || d.Rebuild == nil {
			t.Fatalf("a changed one: %+v, %v", d, err)
		}
		r := v.ended(t, *d.Rebuild)
		if r.State != domain.RebuildSwapped || r.EventsDone != 1000 || r.EventsTotal != 1000 || r.Documents != 10 || r.LiveBefore != 10 || r.Error != "" {
			t.Errorf("the rebuild is %+v", r)
		}
		if speed, left := rebuild.Speed(r); speed <= 0 || left != 0 {
			t.Errorf("its speed is %v, %v", speed, left)
		}
		v.mustBe(t, tenant, 2)
		v.append(t, tenant, 10)
		v.mustBe(t, tenant, 2)
		if p, err := v.catalog.Get(t.Context(), tenant, "sums"); err != nil || p.Definition.Database != "elsewhere" || p.HeldBy != "" || p.Build != r.Build {
			t.Errorf("the projection is %+v, %v", p, err)
		}
		if all, err := v.rebuilds.List(t.Context(), d.Projection.ProjectionID); err != nil || len(all) != 1 {
			t.Errorf("its rebuilds are %+v, %v", all, err)
		}
	}
}

// Definitions are swapped one after another while events are appended at full speed and readers read. Each page comes
// from one build, is complete, is never older than what was seen before, and never uses a definition that was replaced
// before the request.
func TestReadersSeeWholeBuilds(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	v.work(t)
	tenants := []domain.TenantID{v.tenant(t), v.tenant(t)}
	for _, tenant := range tenants {
		v.append(t, tenant, 3000)
	}
	if _, err := v.rebuilds.Deploy(t.Context(), domain.Everyone, sums(1), "test", false); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range tenants {
		v.mustBe(t, tenant, 1)
	}
	var others sync.WaitGroup
	quit := make(chan struct{})
	goOn := func() bool {
		select {
		case <-quit:
			return false
		default:
			return true
		}
	}
	for i, tenant := range tenants {
		others.Go(func() {
			for goOn() {
				v.append(t, tenant, 3+i)
			}
		})
		others.Go(func() {
			var times, events int64
			for goOn() {
				page, err := v.catalog.Documents(context.Background(), tenant, "sums", projection.DocumentsQuery{PageSize: 1000})
				if err != nil {
					t.Error(err)
					return
				}
				var now, seen int64
				for id, s := range decode(t, page.Documents) {
					if now != 0 && s.Times != now {
						t.Errorf("a page of two builds: %q has times %d, another %d", id, s.Times, now)
					}
					now, seen = s.Times, seen+s.Events
				}
				if len(page.Documents) != 10 || now < times || seen < events {
					t.Errorf("a page of %d documents with times %d and %d events, after one with times %d and %d events", len(page.Documents), now, seen, times, events)
					return
				}
				times, events = now, seen
			}
		})
	}
	late := tenants[0]
	for times := 2; times <= 6; times++ {
		d, err := v.rebuilds.Deploy(t.Context(), domain.Everyone, sums(times), "test", false)
		if err != nil {
			t.Fatal(err)
		}
		if times == 4 {
			late = v.tenant(t) // comes while a rebuild is on
			v.append(t, late, 100)
		}
		if r := v.ended(t, *d.Rebuild); r.State != domain.RebuildSwapped {
			t.Fatalf("the rebuild is %+v", r)
		}
	}
	close(quit)
	others.Wait()
	for _, tenant := range append(tenants, late) {
		v.mustBe(t, tenant, 6)
	}
}

// Workers are stopped at any moment, and rebuilds cancelled, while events arrive. A rebuild that is swapped in the end
// is complete; otherwise the live build is as it was.
func TestStoppedWorkersAreReplaced(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	tenants := []domain.TenantID{v.tenant(t), v.tenant(t), v.tenant(t)}
	for _, tenant := range tenants {
		v.append(t, tenant, 2000)
	}
	if _, err := v.rebuilds.Deploy(t.Context(), domain.Everyone, sums(1), "test", false); err != nil {
		t.Fatal(err)
	}
	live, swapped, cancelled := int64(1), 0, 0
	for round := range 8 {
		d, err := v.rebuilds.Deploy(t.Context(), domain.Everyone, sums(round+2), "test", false)
		if err != nil {
			t.Fatal(err)
		}
		for dies := 3 + 21*round; ; dies += 75 {
			v.dies(t, dies, *d.Rebuild, rebuild.Config{
				StaleAfter: 300 * time.Millisecond, Limits: projection.Limits{Events: 400, Bytes: 1 << 20, DocumentBytes: 4 << 10},
			}, func() {
				if round%4 == 3 && dies > 40 {
					if _, err := v.rebuilds.Cancel(t.Context(), d.Rebuild.ProjectionID, d.Rebuild.ID); err != nil && !domain.IsCode(err, domain.CodeConflict) {
						t.Fatal(err)
					}
				}
				v.append(t, tenants[round%3], 20)
			})
			r, err := v.rebuilds.Get(t.Context(), d.Rebuild.ProjectionID, d.Rebuild.ID)
			if err != nil {
				t.Fatal(err)
			}
			if !r.State.Ended() {
				continue
			}
			switch r.State {
			case domain.RebuildSwapped:
				live, swapped = int64(round+2), swapped+1
			case domain.RebuildCancelled:
				cancelled++
			default:
				t.Fatalf("the rebuild is %+v", r)
			}
			break
		}
		for _, tenant := range tenants {
			v.mustBe(t, tenant, live)
		}
	}
	if swapped < 4 || cancelled == 0 {
		t.Errorf("%d rebuilds were swapped, %d cancelled", swapped, cancelled)
	}
}

// over returns a channel that is closed when the rebuild has ended.
func (v *service) over(t *testing.T, r domain.Rebuild) <-chan struct{} {
	over := make(chan struct{})
	run(t, func(ctx context.Context) error {
		look := make(chan struct{}, 1)
		listening, stop := context.WithCancel(ctx)
		var listener sync.WaitGroup
		defer listener.Wait()
		defer stop()
		listener.Go(func() {
			_ = v.store.ListenProjections(listening, func() {
				select {
				case look <- struct{}{}:
				default:
				}
			})
		})
		for {
			now, err := v.rebuilds.Get(ctx, r.ProjectionID, r.ID)
			if err == nil && now.State.Ended() {
				close(over)
				return nil
			}
			select {
			case <-ctx.Done():
				return nil
			case <-look:
			}
		}
	})
	return over
}

func TestAFaultFailsTheRebuild(t *testing.T) {
	t.Parallel()
	v := newService(t)
	v.follow(t)
	v.work(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 500)
	if _, err := v.rebuilds.Deploy(t.Context(), tenant, sums(1), "test", false); err != nil {
		t.Fatal(err)
	}
	v.mustBe(t, tenant, 1)
	faulty := sums(2)
	faulty.On = map[string]string{"Add": "event.position == 300 ? {'a': 1 / 0} : {'times': 2}"}
	wrong := sums(2)
	wrong.Assert = []string{"true", "doc.sum < 100"}
	for says, definition := range map[string]domain.Definition{
		"event 300":               faulty,
		"assert[1] does not hold": wrong,
	} {
		d, err := v.rebuilds.Deploy(t.Context(), tenant, definition, "test", false)
		if err != nil {
			t.Fatal(err)
		}
		r := v.ended(t, *d.Rebuild)
		if r.State != domain.RebuildFailed || !strings.Contains(r.Error, says) {
			t.Errorf("the rebuild is %+v, want one that says %q", r, says)
		}
		v.append(t, tenant, 10)
		v.mustBe(t, tenant, 1)
	}
	if fault, found, err := v.store.Fault(t.Context(), tenant, domain.ProjectionID{Owner: tenant, Name: "sums"}, 1); err != nil || found {
		t.Errorf("the live build has a fault: %+v, %v", fault, err)
	}
}

func TestOneRebuildAtATime(t *testing.T) {
	t.Parallel()
	v := newService(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 50)
	d, err := v.rebuilds.Deploy(t.Context(), tenant, sums(1), "test", false)
	if err != nil {
		t.Fatal(err)
	}
	id := d.Projection.ProjectionID
	first, err := v.rebuilds.Start(t.Context(), id, rebuild.Request{By: "test"})
	if err != nil || first.State != domain.RebuildQueued {
		t.Fatal(first, err)
	}
	if _, err := v.rebuilds.Start(t.Context(), id, rebuild.Request{By: "test"}); !domain.IsCode(err, domain.CodeRebuildRunning) {
		t.Errorf("a second one: %v", err)
	}
	if _, err := v.rebuilds.Deploy(t.Context(), tenant, sums(2), "test", false); !domain.IsCode(err, domain.CodeRebuildRunning) {
		t.Errorf("another definition: %v", err)
	}
	if d, err := v.rebuilds.Deploy(t.Context(), tenant, sums(1), "test", false); err != nil || d.Rebuild == nil || d.Rebuild.ID != first.ID {
		t.Errorf("the definition that is being put in: %+v, %v", d, err)
	}
	if _, err := v.rebuilds.Cancel(t.Context(), id, first.ID); err != nil {
		t.Fatal(err)
	}
	// Nobody has claimed it yet: the first worker that comes ends it.
	v.work(t)
	if r := v.ended(t, first); r.State != domain.RebuildCancelled {
		t.Errorf("the rebuild is %+v", r)
	}
	if _, err := v.rebuilds.Cancel(t.Context(), id, first.ID); !domain.IsCode(err, domain.CodeConflict) {
		t.Errorf("cancelling it again: %v", err)
	}
	bad := sums(1)
	bad.Database = "nowhere"
	if _, err := v.rebuilds.Start(t.Context(), id, rebuild.Request{Definition: &bad}); !domain.IsCode(err, domain.CodeInvalidDefinition) {
		t.Errorf("into a database that does not exist: %v", err)
	}
	if _, err := v.rebuilds.Start(t.Context(), domain.ProjectionID{Owner: tenant, Name: "none"}, rebuild.Request{By: "test"}); !domain.IsCode(err, domain.CodeNotFound) {
		t.Errorf("of a projection that does not exist: %v", err)
	}
}

// Old builds are dropped when they are due, and the live build is not affected.
func TestRetiredBuildsAreDropped(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{true, false} {
		base := newService(t)
		v := base.process(rebuild.Config{Keep: time.Nanosecond})
		v.follow(t)
		tenant := v.tenant(t)
		owner := tenant
		if shared {
			owner = domain.Everyone
		}
		v.append(t, tenant, 100)
		d, err := v.rebuilds.Deploy(t.Context(), owner, sums(1), "test", false)
		if err != nil {
			t.Fatal(err)
		}
		v.mustBe(t, tenant, 1)
		stop := v.work(t)
		next, err := v.rebuilds.Deploy(t.Context(), owner, sums(2), "test", false)
		if err != nil {
			t.Fatal(err)
		}
		v.ended(t, *next.Rebuild)
		stop()
		if err := v.rebuilds.DropRetired(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left, err := v.store.RetiredBuilds(t.Context(), time.Now().Add(time.Hour)); err != nil || len(left) != 0 {
			t.Errorf("still there: %v, %v", left, err)
		}
		old := d.Projection.LiveBuild()
		if n, err := v.drivers["default"].Count(t.Context(), old, tenant, nil); n != 0 || (err == nil) == shared {
			t.Errorf("the old build has %d documents, %v", n, err)
		}
		v.mustBe(t, tenant, 2)
		if err := v.catalog.Delete(t.Context(), owner, "sums", "test"); err != nil {
			t.Fatal(err)
		}
		if err := v.rebuilds.DropRetired(t.Context()); err != nil {
			t.Fatal(err)
		}
		gone := domain.Build{ProjectionID: next.Projection.ProjectionID, Number: next.Rebuild.Build, Database: "default"}
		if n, err := v.drivers["default"].Count(t.Context(), gone, tenant, nil); n != 0 || (err == nil) == shared {
			t.Errorf("the deleted projection has %d documents, %v", n, err)
		}
	}
}

// A worker that takes over a rebuild does not fold again what is saved.
func TestRebuildContinuesFromItsCheckpoints(t *testing.T) {
	t.Parallel()
	v := newService(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 2000)
	d, err := v.rebuilds.Deploy(t.Context(), tenant, sums(1), "test", false)
	if err != nil {
		t.Fatal(err)
	}
	r, err := v.rebuilds.Start(t.Context(), d.Projection.ProjectionID, rebuild.Request{By: "test"})
	if err != nil {
		t.Fatal(err)
	}
	small := projection.Limits{Events: 100, Bytes: 1 << 20, DocumentBytes: 4 << 10}
	killed, network, end := v.mortal(t, rebuild.Config{StaleAfter: time.Minute, Poll: time.Minute, Limits: small})
	killed.drivers["default"] = cutsOnSave{killed.drivers["default"], network}
	stop := killed.work(t)
	<-network.Dead()
	stop()
	end()
	build := r.NewBuild()
	reached, err := v.drivers["default"].Checkpoint(t.Context(), build, tenant)
	if err != nil || reached == 0 || reached >= 2000 {
		t.Fatalf("killed at position %d, %v", reached, err)
	}
	saves := &firstSaves{Driver: v.drivers["default"]}
	next := v.process(rebuild.Config{Drivers: map[string]drivers.Driver{"default": saves}, StaleAfter: 200 * time.Millisecond, Limits: small})
	next.work(t)
	if r := v.ended(t, r); r.State != domain.RebuildSwapped || r.EventsDone != 2000 {
		t.Fatalf("the rebuild is %+v", r)
	}
	if saves.from != reached {
		t.Errorf("the next worker began at %d, the killed one got to %d", saves.from, reached)
	}
	v.follow(t)
	v.mustBe(t, tenant, 1)
}

// firstSaves records where the first save begins.
type firstSaves struct {
	drivers.Driver
	once sync.Once
	from int64
}

func (f *firstSaves) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	f.once.Do(func() { f.from = batch.From })
	return f.Driver.Save(ctx, build, tenant, batch)
}
