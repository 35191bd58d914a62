package registry_test

import (
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// The examples of a rebuild of a shared projection lose an erased tenant's documents, and keep those of other tenants.
func TestForgetExamplesOfErasedTenants(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	gone, kept := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	_, rebuild := tablestest.Projection(t, s, domain.ProjectionID{Owner: domain.Everyone, Name: "shared"})
	mine := tablestest.Claim(t, s, rebuild)
	mine.Difference = &domain.Difference{New: 2}
	for _, tenant := range []domain.TenantID{gone, kept} {
		mine.Difference.Examples = append(mine.Difference.Examples, domain.DifferenceExample{Tenant: tenant, ID: "order-1", Kind: domain.DifferenceNew, Built: []byte(`{"n": 1}`)})
	}
	_, err := s.SaveRebuild(t.Context(), mine)
	tablestest.Must(t, err)
	examples := func() []domain.DifferenceExample {
		t.Helper()
		found, err := s.Rebuild(t.Context(), rebuild.ProjectionID, rebuild.ID)
		tablestest.Must(t, err)
		return found.Difference.Examples
	}
	if all := examples(); len(all) != 2 {
		t.Fatalf("the examples are %+v", all)
	}
	tablestest.Must(t, s.SetTenantState(t.Context(), gone, domain.TenantDeleting))
	tablestest.Must(t, s.EraseTenant(t.Context(), gone))
	if left := examples(); len(left) != 1 || left[0].Tenant != kept {
		t.Errorf("the examples are %+v", left)
	}
}

// A worker's beat does not change the difference, and returns the requests made meanwhile.
func TestBeatReturnsRequests(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	for _, owner := range owners(t, s) {
		projection, first := tablestest.Projection(t, s, domain.ProjectionID{Owner: owner, Name: "same"})
		first.State = domain.RebuildCancelled
		tablestest.Must(t, s.EndRebuild(t.Context(), first, time.Now()))
		build, err := s.NextBuild(t.Context(), owner)
		tablestest.Must(t, err)
		options := domain.RebuildOptions{Manual: true, MaxEventsPerSecond: 7, Keep: time.Minute, Assert: []string{"true"}}
		queued := domain.Rebuild{
			ProjectionID: projection.ProjectionID, ID: domain.NewRebuildID(), Build: build, Definition: projection.Definition, RebuildOptions: options, By: "me",
		}
		tablestest.Must(t, s.CreateRebuild(t.Context(), queued))
		mine := tablestest.Claim(t, s, queued)
		if mine.By != "me" || !mine.Manual || mine.MaxEventsPerSecond != 7 || mine.Keep != time.Minute || len(mine.Assert) != 1 {
			t.Errorf("claimed %+v", mine)
		}
		mine.Difference = &domain.Difference{Same: 3}
		_, err = s.SaveRebuild(t.Context(), mine)
		tablestest.Must(t, err)
		mine.Difference, mine.EventsDone, mine.EventsPerSecond = nil, 5, 2.5
		tablestest.Must(t, s.ApproveRebuild(t.Context(), mine.ProjectionID, mine.ID))
		tablestest.Must(t, s.PauseRebuild(t.Context(), mine.ProjectionID, mine.ID))
		saved, err := s.BeatRebuild(t.Context(), mine)
		tablestest.Must(t, err)
		found, err := s.Rebuild(t.Context(), mine.ProjectionID, mine.ID)
		tablestest.Must(t, err)
		if !saved.Paused || !saved.Approved || saved.Cancel || found.Difference == nil || found.Difference.Same != 3 || found.EventsDone != 5 || found.EventsPerSecond != 2.5 {
			t.Errorf("saved %+v, found %+v", saved, found)
		}
		// Nobody claims it while it rests, unless it is to be cancelled.
		tablestest.Must(t, s.ReleaseRebuild(t.Context(), mine))
		if _, ok, err := s.ClaimRebuild(t.Context(), mine.ProjectionID, mine.ID, worker(), 0); err != nil || ok {
			t.Errorf("claimed while it rests: %v, %v", ok, err)
		}
		tablestest.Must(t, s.CancelRebuild(t.Context(), mine.ProjectionID, mine.ID))
		if _, ok, err := s.ClaimRebuild(t.Context(), mine.ProjectionID, mine.ID, worker(), 0); err != nil || !ok {
			t.Errorf("not claimed to be cancelled: %v, %v", ok, err)
		}
	}
}
