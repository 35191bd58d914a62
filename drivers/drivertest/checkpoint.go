package drivertest

import (
	"maps"
	"math"
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
			s.wantCheckpoint(t, build, checkpoint.Tenant, checkpoint.Position) // the loop may call the driver, and end
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
		second.Owner = two // the same number: it is unique for its owner only
		s.save(t, first, one, drivers.Batch{To: 1})
		s.save(t, second, two, drivers.Batch{To: 2})
		if found := all(t, first); len(found) != 1 || found[one] != 1 {
			t.Errorf("Checkpoints gives %v, want %s at 1", found, one)
		}
	})

	parallel(t, "an error ends them", func(t *testing.T) {
		yielded := 0
		for _, err := range s.driver.Checkpoints(t.Context(), s.unmade()) {
			yielded++
			wantError(t, err, drivers.ErrNoTable)
		}
		if yielded != 1 {
			t.Errorf("%d pairs came, want the error alone", yielded)
		}
	})
}
