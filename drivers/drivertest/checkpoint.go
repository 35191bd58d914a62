package drivertest

import (
	"context"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

func (s *suite) checkpoints(t *testing.T) {
	t.Parallel()
	all := func(t *testing.T, build domain.Build) map[domain.TenantID]int64 {
		t.Helper()
		found := make(map[domain.TenantID]int64)
		for checkpoint, err := range s.driver.Checkpoints(t.Context(), build) {
			if err != nil {
				t.Fatalf("Checkpoints: %v", err)
			}
			if _, twice := found[checkpoint.Tenant]; twice {
				t.Errorf("Checkpoints gives tenant %s twice", checkpoint.Tenant)
			}
			found[checkpoint.Tenant] = checkpoint.Position
		}
		return found
	}

	s.each(t, "where the last save ended", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		s.wantCheckpoint(t, build, tenant, 0)
		if found := all(t, build); len(found) != 0 {
			t.Errorf("Checkpoints gives %v before the first save", found)
		}
		var at int64
		for _, to := range []int64{1, 2, 1000, 1 << 53, math.MaxInt64} {
			s.save(t, build, tenant, drivers.Batch{From: at, To: to})
			s.wantCheckpoint(t, build, tenant, to)
			if found := all(t, build); len(found) != 1 || found[tenant] != to {
				t.Errorf("Checkpoints gives %v, want tenant %s at %d", found, tenant, to)
			}
			at = to
		}
		s.wantDocuments(t, build, tenant)
	})

	parallel(t, "every tenant's of a shared build", func(t *testing.T) {
		build, other := s.shared(t), s.shared(t)
		want := make(map[domain.TenantID]int64)
		for position := range int64(50) {
			tenant := domain.NewTenantID()
			batch := drivers.Batch{To: position + 1}
			if position%2 == 0 {
				batch.Upserts = []domain.Document{document("a", 1, `{}`)}
			}
			s.save(t, build, tenant, batch)
			want[tenant] = position + 1
		}
		s.save(t, other, domain.NewTenantID(), drivers.Batch{To: 99})
		if found := all(t, build); !maps.Equal(found, want) {
			t.Errorf("Checkpoints gives %v, want %v", found, want)
		}
		seen := 0
		for checkpoint := range s.driver.Checkpoints(t.Context(), build) {
			s.wantCheckpoint(t, build, checkpoint.Tenant, checkpoint.Position) // the loop may call the driver, and break
			s.save(t, build, checkpoint.Tenant, drivers.Batch{From: checkpoint.Position, To: checkpoint.Position + 1})
			if seen++; seen == 3 {
				break
			}
		}
		if seen != 3 {
			t.Errorf("a loop that ends after 3 checkpoints saw %d", seen)
		}
	})

	parallel(t, "only the owner's of a tenant's own", func(t *testing.T) {
		one, two := domain.NewTenantID(), domain.NewTenantID()
		first := s.own(one)
		second := first
		second.Owner = two // the same number: it is unique only per owner
		s.save(t, first, one, drivers.Batch{To: 1})
		s.save(t, second, two, drivers.Batch{To: 2})
		if found := all(t, first); len(found) != 1 || found[one] != 1 {
			t.Errorf("Checkpoints gives %v, want %s at 1", found, one)
		}
	})

	parallel(t, "an error ends them", func(t *testing.T) {
		yielded := 0
		for _, err := range s.driver.Checkpoints(t.Context(), s.withoutTable()) {
			yielded++
			wantError(t, err, drivers.ErrNoTable)
		}
		if yielded != 1 {
			t.Errorf("%d pairs were yielded, want only the error", yielded)
		}
	})

	s.ownCheckpoints(t)
}

// ownCheckpoints tests the checkpoints of all tenants' own builds.
func (s *suite) ownCheckpoints(t *testing.T) {
	type place struct {
		tenant domain.TenantID
		build  int64
	}
	// Other tests save to their builds meanwhile, so only some tenants are examined.
	of := func(t *testing.T, driver drivers.Driver, tenants ...domain.TenantID) map[place]int64 {
		t.Helper()
		found, seen := make(map[place]int64), make(map[place]bool)
		for checkpoint, err := range driver.OwnCheckpoints(t.Context()) {
			if err != nil {
				t.Fatalf("OwnCheckpoints: %v", err)
			}
			at := place{checkpoint.Tenant, checkpoint.Build}
			if seen[at] {
				t.Errorf("OwnCheckpoints gives build %d of tenant %s twice", checkpoint.Build, checkpoint.Tenant)
			}
			seen[at] = true
			if slices.Contains(tenants, checkpoint.Tenant) {
				found[at] = checkpoint.Position
			}
		}
		return found
	}

	parallel(t, "every own build's, and no shared one's", func(t *testing.T) {
		one, two, none := domain.NewTenantID(), domain.NewTenantID(), domain.NewTenantID()
		shared, first := s.shared(t), s.own(one)
		same, second := first, s.own(one)
		same.Owner = two // the same number: it is unique only per owner
		want := make(map[place]int64)
		check := func(when string) {
			t.Helper()
			if found := of(t, s.driver, one, two, none); !maps.Equal(found, want) {
				t.Errorf("%s OwnCheckpoints gives %v, want %v", when, found, want)
			}
		}
		check("before the first save")
		for _, tenant := range []domain.TenantID{one, none} {
			s.save(t, shared, tenant, drivers.Batch{To: 9, Upserts: []domain.Document{document("a", 1, `{}`)}})
		}
		check("with a shared build")
		s.save(t, first, one, drivers.Batch{To: 1, Upserts: []domain.Document{document("a", 1, `{}`), document("b", 1, `{}`)}})
		s.save(t, same, two, drivers.Batch{To: 2})
		s.save(t, second, one, drivers.Batch{To: math.MaxInt64})
		want[place{one, first.Number}], want[place{two, same.Number}], want[place{one, second.Number}] = 1, 2, math.MaxInt64
		check("with three builds")
		s.save(t, first, one, drivers.Batch{From: 1, To: 7, Deletes: []drivers.Deletion{{ID: "a", Version: 7}}})
		want[place{one, first.Number}] = 7
		check("when one went ahead")
		if err := s.driver.DropTable(t.Context(), first); err != nil {
			t.Fatalf("DropTable: %v", err)
		}
		delete(want, place{one, first.Number})
		check("when one was dropped")
		if err := s.driver.DropTenant(t.Context(), same, two); err != nil {
			t.Fatalf("DropTenant: %v", err)
		}
		delete(want, place{two, same.Number})
		check("when a tenant was dropped")
	})

	parallel(t, "a loop over the own ones may call the driver, and end", func(t *testing.T) {
		for range 4 {
			tenant := domain.NewTenantID()
			s.save(t, s.own(tenant), tenant, drivers.Batch{To: 3})
		}
		seen := 0
		for checkpoint, err := range s.driver.OwnCheckpoints(t.Context()) {
			if err != nil {
				t.Fatalf("OwnCheckpoints: %v", err)
			}
			build := domain.Build{ProjectionID: domain.ProjectionID{Owner: checkpoint.Tenant, Name: "any"}, Number: checkpoint.Build}
			if _, err := s.driver.Checkpoint(t.Context(), build, checkpoint.Tenant); err != nil {
				t.Fatalf("Checkpoint: %v", err)
			}
			if seen++; seen == 3 {
				break
			}
		}
		if seen != 3 {
			t.Errorf("a loop that ends after 3 checkpoints saw %d", seen)
		}
	})

	parallel(t, "an error ends the own ones", func(t *testing.T) {
		tenant := domain.NewTenantID()
		s.save(t, s.own(tenant), tenant, drivers.Batch{To: 3})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		yielded := 0
		for checkpoint, err := range s.driver.OwnCheckpoints(ended) {
			yielded++
			wantError(t, err, context.Canceled)
			if checkpoint != (drivers.OwnCheckpoint{}) {
				t.Errorf("%v was yielded with the error", checkpoint)
			}
		}
		if yielded != 1 {
			t.Errorf("%d pairs were yielded, want only the error", yielded)
		}
	})

	parallel(t, "no own ones where nothing was saved", func(t *testing.T) {
		driver := s.Harness.Place(t).Open(t)
		defer driver.Close()
		for checkpoint, err := range driver.OwnCheckpoints(t.Context()) {
			t.Errorf("OwnCheckpoints gives %v, %v", checkpoint, err)
		}
	})
}
