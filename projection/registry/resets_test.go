package registry_test

import (
	"slices"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// reset resets a projection, which keeps its definition.
func reset(t *testing.T, s *tables.Tables, id domain.ProjectionID, build int64) error {
	t.Helper()
	projection, err := s.Projection(t.Context(), id)
	tablestest.Must(t, err)
	if err := s.BeginReset(t.Context(), domain.Build{ProjectionID: id, Number: build, Database: "default"}, projection.Definition, "test"); err != nil {
		return err
	}
	return s.ResetProjection(t.Context(), id, build, time.Now())
}

// A registered reset holds the events that it is about to read, excludes other changes of the projection, and leaves
// nothing behind. A reset that another process took for dead does not succeed.
func TestResetsAreRegistered(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	ctx := t.Context()
	for name, owner := range owners(t, s) {
		t.Run(name, func(t *testing.T) {
			id := domain.ProjectionID{Owner: owner, Name: "same"}
			projection, _ := tablestest.Projection(t, s, id)
			ended(t, s, id)
			before, err := s.Rebuilds(ctx, id)
			tablestest.Must(t, err)
			tenant := owner
			if tenant == domain.Everyone {
				tenant = tablestest.NewTenant(t, s)
			}
			holds := func() bool {
				holds, err := s.RetentionHolds(ctx, tenant, "order")
				tablestest.Must(t, err)
				return slices.Contains(holds, domain.RetentionHold{Kind: domain.HoldRebuild, Name: "same"})
			}
			build := domain.Build{ProjectionID: id, Number: 60, Database: "default"}
			begin := func() {
				t.Helper()
				tablestest.Must(t, s.BeginReset(ctx, build, projection.Definition, "test"))
				if !holds() {
					t.Error("a reset that is registered holds nothing")
				}
			}
			begin()
			again := build
			again.Number = 61
			tablestest.WantCode(t, s.BeginReset(ctx, again, projection.Definition, "test"), domain.CodeRebuildRunning)
			tablestest.WantCode(t, s.CreateRebuild(ctx, domain.Rebuild{ProjectionID: id, ID: domain.NewRebuildID(), Build: 62, Definition: projection.Definition}), domain.CodeRebuildRunning)
			tablestest.WantCode(t, s.ResetProjection(ctx, id, 61, time.Now()), domain.CodeUnavailable)
			tablestest.Must(t, s.AbandonReset(ctx, build))
			tablestest.Must(t, s.AbandonReset(ctx, build))
			if holds() {
				t.Error("a reset that was abandoned holds still")
			}
			begin()
			tablestest.Must(t, s.ResetProjection(ctx, id, 60, time.Now()))
			after, err := s.Rebuilds(ctx, id)
			if err != nil || len(after) != len(before) || holds() {
				t.Errorf("there are %d rebuilds, %v; before there were %d; held: %v", len(after), err, len(before), holds())
			}
			// Its process has died, and somebody ends it.
			build.Number = 63
			begin()
			running, err := s.RunningRebuilds(ctx)
			tablestest.Must(t, err)
			i := slices.IndexFunc(running, func(r domain.Rebuild) bool { return r.ProjectionID == id })
			if _, ok, err := s.ClaimRebuild(ctx, id, running[i].ID, domain.NewRebuildID().String(), time.Hour); ok || err != nil {
				t.Fatalf("one that is alive is taken over: %v, %v", ok, err)
			}
			taken, ok, err := s.ClaimRebuild(ctx, id, running[i].ID, domain.NewRebuildID().String(), -time.Second)
			if !ok || err != nil || !taken.Cancel {
				t.Fatalf("taken over: %+v, %v, %v", taken, ok, err)
			}
			tablestest.WantCode(t, s.ResetProjection(ctx, id, 63, time.Now()), domain.CodeUnavailable)
			taken.State = domain.RebuildCancelled
			tablestest.Must(t, s.EndRebuild(ctx, taken, time.Now()))
			tablestest.WantCode(t, s.ResetProjection(ctx, id, 63, time.Now()), domain.CodeUnavailable)
			tablestest.Must(t, s.AbandonReset(ctx, build))
			if p, err := s.Projection(ctx, id); err != nil || p.Build != 60 {
				t.Errorf("live is %+v, %v", p, err)
			}
		})
	}
}

// A reset applies to the definition that was read. If the definition has changed meanwhile, nothing would hold the
// events that the new build reads, and its table would be in another database.
func TestResetRefusesAChangedDefinition(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	ctx := t.Context()
	id := domain.ProjectionID{Owner: tablestest.NewTenant(t, s), Name: "same"}
	projection, _ := tablestest.Projection(t, s, id)
	ended(t, s, id)
	changed := projection.Definition
	changed.Source.Categories = []string{"order", "user"}
	_, err := s.ChangeDefinition(ctx, id, projection.Definition, changed, "test")
	tablestest.Must(t, err)
	build := domain.Build{ProjectionID: id, Number: 60, Database: "default"}
	tablestest.WantCode(t, s.BeginReset(ctx, build, projection.Definition, "test"), domain.CodeConflict)
	tablestest.Must(t, s.BeginReset(ctx, build, changed, "test"))
	tablestest.Must(t, s.ResetProjection(ctx, id, 60, time.Now()))
}
