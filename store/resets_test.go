package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/store"
)

// reset resets a projection, which keeps its definition.
func reset(t *testing.T, s *store.Store, id domain.ProjectionID, build int64) error {
	t.Helper()
	projection, err := s.Projection(t.Context(), id)
	must(t, err)
	if err := s.BeginReset(t.Context(), domain.Build{ProjectionID: id, Number: build, Database: "default"}, projection.Definition, "test"); err != nil {
		return err
	}
	return s.ResetProjection(t.Context(), id, build, time.Now())
}

// A reset that is registered holds what it is about to read, is the only thing that is made of the projection, and leaves nothing
// of itself behind. One that somebody takes for dead does not come through.
func TestResetsAreRegistered(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t)
	ctx := t.Context()
	for name, owner := range owners(t, s) {
		t.Run(name, func(t *testing.T) {
			id := domain.ProjectionID{Owner: owner, Name: "same"}
			projection, _ := fixture(t, s, id)
			ended(t, s, id)
			before, err := s.Rebuilds(ctx, id)
			must(t, err)
			tenant := owner
			if tenant == domain.Everyone {
				tenant = newTenant(t, s)
			}
			holds := func() bool {
				holds, err := s.RetentionHolds(ctx, tenant, "order")
				must(t, err)
				return slices.Contains(holds, domain.RetentionHold{Kind: domain.HoldRebuild, Name: "same"})
			}
			build := domain.Build{ProjectionID: id, Number: 60, Database: "default"}
			begin := func() {
				t.Helper()
				must(t, s.BeginReset(ctx, build, projection.Definition, "test"))
				if !holds() {
					t.Error("a reset that is registered holds nothing")
				}
			}
			begin()
			again := build
			again.Number = 61
			wantCode(t, s.BeginReset(ctx, again, projection.Definition, "test"), domain.CodeRebuildRunning)
			wantCode(t, s.CreateRebuild(ctx, domain.Rebuild{ProjectionID: id, ID: domain.NewRebuildID(), Build: 62, Definition: projection.Definition}), domain.CodeRebuildRunning)
			wantCode(t, s.ResetProjection(ctx, id, 61, time.Now()), domain.CodeUnavailable)
			must(t, s.AbandonReset(ctx, build))
			must(t, s.AbandonReset(ctx, build))
			if holds() {
				t.Error("a reset that was abandoned holds still")
			}
			begin()
			must(t, s.ResetProjection(ctx, id, 60, time.Now()))
			after, err := s.Rebuilds(ctx, id)
			if err != nil || len(after) != len(before) || holds() {
				t.Errorf("there are %d rebuilds, %v; before there were %d; held: %v", len(after), err, len(before), holds())
			}
			// Its process has died, and somebody ends it.
			build.Number = 63
			begin()
			running, err := s.RunningRebuilds(ctx)
			must(t, err)
			i := slices.IndexFunc(running, func(r domain.Rebuild) bool { return r.ProjectionID == id })
			if _, ok, err := s.ClaimRebuild(ctx, id, running[i].ID, domain.NewRebuildID().String(), time.Hour); ok || err != nil {
				t.Fatalf("one that is alive is taken over: %v, %v", ok, err)
			}
			taken, ok, err := s.ClaimRebuild(ctx, id, running[i].ID, domain.NewRebuildID().String(), -time.Second)
			if !ok || err != nil || !taken.Cancel {
				t.Fatalf("taken over: %+v, %v, %v", taken, ok, err)
			}
			wantCode(t, s.ResetProjection(ctx, id, 63, time.Now()), domain.CodeUnavailable)
			taken.State = domain.RebuildCancelled
			must(t, s.EndRebuild(ctx, taken, time.Now()))
			wantCode(t, s.ResetProjection(ctx, id, 63, time.Now()), domain.CodeUnavailable)
			must(t, s.AbandonReset(ctx, build))
			if p, err := s.Projection(ctx, id); err != nil || p.Build != 60 {
				t.Errorf("live is %+v, %v", p, err)
			}
		})
	}
}

// A reset is of the definition that was looked at: where another one is there by now, with another source or another database, nothing
// would hold what the new build reads, and its table would be elsewhere.
func TestAResetIsOfTheDefinitionThatWasLookedAt(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t)
	ctx := t.Context()
	id := domain.ProjectionID{Owner: newTenant(t, s), Name: "same"}
	projection, _ := fixture(t, s, id)
	ended(t, s, id)
	changed := projection.Definition
	changed.Source.Categories = []string{"order", "user"}
	_, err := s.ChangeDefinition(ctx, id, projection.Definition, changed, "test")
	must(t, err)
	build := domain.Build{ProjectionID: id, Number: 60, Database: "default"}
	wantCode(t, s.BeginReset(ctx, build, projection.Definition, "test"), domain.CodeConflict)
	must(t, s.BeginReset(ctx, build, changed, "test"))
	must(t, s.ResetProjection(ctx, id, 60, time.Now()))
}
