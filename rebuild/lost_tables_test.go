package rebuild_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/rebuild"
)

// A shared projection whose table vanishes is rebuilt, manually or automatically, and only once.
func TestLostTableIsRebuilt(t *testing.T) {
	t.Parallel()
	v := newService(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 100)
	d, err := v.rebuilds.Deploy(t.Context(), domain.Everyone, sums(1), "test", false)
	if err != nil {
		t.Fatal(err)
	}
	v.follow(t)
	v.work(t)
	v.mustBe(t, tenant, 1)
	vanish := func() (build int64) {
		t.Helper()
		live, err := v.catalog.Get(t.Context(), tenant, "sums")
		if err != nil {
			t.Fatal(err)
		}
		if err := v.drivers["default"].DropTable(t.Context(), live.LiveBuild()); err != nil {
			t.Fatal(err)
		}
		if s, err := v.catalog.Status(t.Context(), tenant, "sums"); err != nil || s.State != projection.StateLost {
			t.Fatalf("the status is %+v, %v", s, err)
		}
		return live.Build
	}

	build := vanish()
	r, err := v.rebuilds.Start(t.Context(), d.Projection.ProjectionID, rebuild.Request{By: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if r := v.ended(t, r); r.State != domain.RebuildSwapped || r.Documents != 10 || r.LiveBefore != 0 {
		t.Fatalf("the manual rebuild: %+v", r)
	}
	v.mustBe(t, tenant, 1)
	v.rebuilds.Lost(d.Projection.ProjectionID, build) // of a build that is live no more

	build = vanish()
	other := v.process(rebuild.Config{})
	other.work(t)
	for range 3 {
		other.rebuilds.Lost(d.Projection.ProjectionID, build)
	}
	all := v.awaitRebuilds(t, d.Projection.ProjectionID, 2)
	if r := v.ended(t, all[0]); r.State != domain.RebuildSwapped {
		t.Fatalf("by itself: %+v", r)
	}
	v.mustBe(t, tenant, 1)
	build = vanish()
	other.rebuilds.Lost(d.Projection.ProjectionID, build)
	v.append(t, tenant, 1)
	if all, err := v.rebuilds.List(t.Context(), d.Projection.ProjectionID); err != nil || len(all) != 2 {
		t.Errorf("a moment later another one was started: %+v, %v", all, err)
	}
}

// awaitRebuilds waits until a projection has a number of rebuilds.
func (v *service) awaitRebuilds(t *testing.T, id domain.ProjectionID, count int) []domain.Rebuild {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); ; {
		all, err := v.rebuilds.List(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == count {
			return all
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("there are %d rebuilds, not %d", len(all), count)
		}
	}
}

// dead is a driver whose database does not answer while the test says so.
type dead struct {
	drivers.Driver
	out   atomic.Bool
	known atomic.Bool // a save has found out
}

var errRefused = fmt.Errorf("%w: %w", domain.Errorf(domain.CodeUnavailable, "", "the database cannot serve now"), errors.New("dial 10.0.0.1 as manifold_documents"))

func (d *dead) Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error) {
	if d.out.Load() {
		return nil, errRefused
	}
	return d.Driver.Query(ctx, build, tenant, query)
}

func (d *dead) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	if d.out.Load() {
		d.known.Store(true)
		return errRefused
	}
	return d.Driver.Save(ctx, build, tenant, batch)
}

func (d *dead) DropTable(ctx context.Context, build domain.Build) error {
	if d.out.Load() {
		return errRefused
	}
	return d.Driver.DropTable(ctx, build)
}

// A projection can move away from a database that does not answer, or that is no longer in the configuration. The old
// table is dropped as soon as possible, and nothing waits for that.
func TestMoveFromADeadDatabase(t *testing.T) {
	t.Parallel()
	for name, configured := range map[string]bool{"down": true, "gone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newService(t)
			tenant := v.tenant(t)
			v.append(t, tenant, 100)
			before := sums(1)
			before.Database = "elsewhere"
			d, err := v.rebuilds.Deploy(t.Context(), domain.Everyone, before, "test", false)
			if err != nil {
				t.Fatal(err)
			}
			stop := v.follow(t)
			v.mustBe(t, tenant, 1)
			stop()
			old := d.Projection.LiveBuild()

			off := &dead{Driver: v.drivers["elsewhere"]}
			off.out.Store(true)
			left := map[string]drivers.Driver{"default": v.drivers["default"]}
			if configured {
				left["elsewhere"] = off
			}
			w := v.process(rebuild.Config{Drivers: left, Keep: time.Nanosecond})
			w.follow(t)
			w.work(t)
			moved, err := w.rebuilds.Deploy(t.Context(), domain.Everyone, sums(2), "test", false)
			if err != nil || moved.Rebuild == nil {
				t.Fatalf("%+v, %v", moved, err)
			}
			if r := w.ended(t, *moved.Rebuild); r.State != domain.RebuildSwapped || r.Documents != 10 || r.LiveBefore != 0 {
				t.Fatalf("the rebuild is %+v", r)
			}
			w.append(t, tenant, 5)
			w.mustBe(t, tenant, 2)
			retired, err := v.store.RetiredBuilds(t.Context(), time.Now())
			if err != nil || len(retired) != 1 || retired[0].Number != old.Number {
				t.Fatalf("retired are %+v, %v", retired, err)
			}
			// Somebody who can reach it drops it.
			off.out.Store(false)
			x := v.process(rebuild.Config{Drivers: map[string]drivers.Driver{"default": v.drivers["default"], "elsewhere": off}})
			if err := x.rebuilds.DropRetired(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := v.drivers["elsewhere"].Checkpoint(t.Context(), old, tenant); !errors.Is(err, drivers.ErrNoTable) {
				t.Errorf("the old table is still there: %v", err)
			}
		})
	}
}

// A rebuild whose database goes down frees its slot, says why it waits, and continues when the database is back.
func TestRebuildThatWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	v := newService(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 100)
	off := &dead{Driver: v.drivers["elsewhere"]}
	off.out.Store(true)
	w := v.process(rebuild.Config{
		Drivers: map[string]drivers.Driver{"default": v.drivers["default"], "elsewhere": off}, Concurrent: 1,
		Outages: func(database string) (projection.Outage, bool) {
			return projection.Outage{Error: "connection refused"}, database == "elsewhere" && off.known.Load() && off.out.Load()
		},
		Poll: time.Hour,
	})
	var waits [2]domain.Rebuild
	for i, database := range []string{"elsewhere", "default"} {
		definition := sums(1)
		definition.Name += database
		d, err := w.rebuilds.Deploy(t.Context(), tenant, definition, "test", false)
		if err != nil {
			t.Fatal(err)
		}
		definition.Database = database
		if waits[i], err = w.rebuilds.Start(t.Context(), d.Projection.ProjectionID, rebuild.Request{Definition: &definition}); err != nil {
			t.Fatal(err)
		}
	}
	w.work(t)
	w.rebuilds.Wake()
	if r := w.ended(t, waits[1]); r.State != domain.RebuildSwapped {
		t.Fatalf("the other rebuild is %+v", r)
	}
	if r, err := w.rebuilds.Get(t.Context(), waits[0].ProjectionID, waits[0].ID); err != nil || r.State.Ended() || r.Worker != "" {
		t.Fatalf("the rebuild that waits is %+v, %v", r, err)
	} else if !strings.Contains(r.Error, "cannot serve now") || strings.Contains(r.Error, "10.0.0.1") {
		t.Errorf("the rebuild that waits says %q", r.Error)
	}
	off.out.Store(false)
	w.rebuilds.Answers("elsewhere")
	if r := w.ended(t, waits[0]); r.State != domain.RebuildSwapped || r.Documents != 10 {
		t.Fatalf("the rebuild is %+v", r)
	}
}

// A rebuild that keeps failing, because its database answers but is unusable, does not block others.
func TestFailingRebuildsAreRetriedLessOften(t *testing.T) {
	t.Parallel()
	v := newService(t)
	tenant := v.tenant(t)
	v.append(t, tenant, 100)
	off := &dead{Driver: v.drivers["elsewhere"]}
	off.out.Store(true)
	w := v.process(rebuild.Config{
		Drivers: map[string]drivers.Driver{"default": v.drivers["default"], "elsewhere": off}, Concurrent: 1, Poll: time.Hour,
	})
	var queued [2]domain.Rebuild
	for i, database := range []string{"elsewhere", "default"} {
		definition := sums(1)
		definition.Name += database
		d, err := w.rebuilds.Deploy(t.Context(), tenant, definition, "test", false)
		if err != nil {
			t.Fatal(err)
		}
		definition.Database = database
		if queued[i], err = w.rebuilds.Start(t.Context(), d.Projection.ProjectionID, rebuild.Request{Definition: &definition}); err != nil {
			t.Fatal(err)
		}
	}
	w.work(t)
	w.rebuilds.Wake()
	if r := w.ended(t, queued[1]); r.State != domain.RebuildSwapped {
		t.Fatalf("the other rebuild is %+v", r)
	}
	off.out.Store(false)
	if r := w.ended(t, queued[0]); r.State != domain.RebuildSwapped || r.Documents != 10 {
		t.Fatalf("the rebuild is %+v", r)
	}
}
