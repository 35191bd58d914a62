package projection_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/retention"
)

// Whenever a reset and a retention run meet, one sees the other: either the reset is refused, or it holds the events
// that it is about to read.
func TestResetAndRetentionSeeEachOther(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.process(options{})
	refused, held := 0, 0
	for range 30 {
		tenant := b.tenant(t)
		b.append(t, tenant, "order-1", "Added", `1`)
		if _, err := p.catalog.Create(t.Context(), tenant, numbering("c", "order"), "test"); err != nil {
			t.Fatal(err)
		}
		policy, _, err := b.store.PutRetentionPolicy(t.Context(), tenant, retention.Policy{Category: "order", MaxCount: 1})
		if err != nil {
			t.Fatal(err)
		}
		// The build that is live has seen everything.
		live, err := b.store.Projection(t.Context(), domain.ProjectionID{Owner: tenant, Name: "c"})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.driver.Save(t.Context(), live.LiveBuild(), tenant, drivers.Batch{From: 0, To: 1}); err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		var resetErr error
		both.Go(func() { _, resetErr = p.catalog.Reset(t.Context(), tenant, "c", "test", false) })
		holds := false
		both.Go(func() {
			if _, err := b.store.AnnounceRetention(t.Context(), tenant, "order", policy.Revision, retention.NewRunID(), 1); err != nil {
				t.Error(err)
			}
			// As a run asks: the groups and rebuilds, and then the projections.
			rebuilds, err := b.store.RetentionHolds(t.Context(), tenant, "order")
			if err != nil {
				t.Error(err)
			}
			projections, err := p.catalog.RetentionHolds(t.Context(), tenant, "order")
			if err != nil {
				t.Error(err)
			}
			holds = slices.ContainsFunc(slices.Concat(rebuilds, projections), func(h domain.RetentionHold) bool { return h.Position == 0 })
		})
		both.Wait()
		e, _ := errors.AsType[*domain.Error](resetErr)
		switch {
		case resetErr == nil && !holds:
			t.Fatal("the reset saw no announcement, and the retention run no hold")
		case resetErr == nil:
			held++
		case e == nil || e.Code != domain.CodeEventsRemoved:
			t.Fatal(resetErr)
		default:
			refused++
			// It leaves nothing behind: the next one is refused for the same reason, and goes by that.
			if _, err := p.catalog.Reset(t.Context(), tenant, "c", "test", true); err != nil {
				t.Fatal(err)
			}
		}
		if rebuilds, err := b.store.Rebuilds(t.Context(), live.ProjectionID); err != nil || len(rebuilds) > 0 {
			t.Fatalf("left are %+v, %v", rebuilds, err)
		}
	}
	t.Logf("%d times the reset was refused, %d times it held the event", refused, held)
}
