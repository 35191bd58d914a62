package drivertest

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// repair tests batches that leave the checkpoint where it is.
func (s *suite) repair(t *testing.T) {
	t.Parallel()
	s.each(t, "writes over older versions only, and the checkpoint stays", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		older, newer, removed, untouched := document("older", 3, `{"n": 1}`), document("newer", 10, `{"n": 2}`), document("removed", 4, `{}`), document("untouched", 1, `{}`)
		s.save(t, build, tenant, drivers.Batch{To: 10, Upserts: []domain.Document{older, newer, removed, untouched}})
		repaired, missing := document("older", 7, `{"n": 3}`), document("missing", 2, `{"n": 4}`)
		batch := drivers.Batch{From: 10, To: 10,
			Upserts: []domain.Document{repaired, document("newer", 9, `{"stale": true}`), missing},
			Deletes: []drivers.Deletion{{ID: "removed", Version: 6}, {ID: "never there", Version: 10}}}
		for range 2 {
			s.save(t, build, tenant, batch)
			s.wantDocuments(t, build, tenant, repaired, newer, missing, untouched)
			s.wantCheckpoint(t, build, tenant, 10)
		}
		// Documents with the same or a newer version are neither overwritten nor removed, even if they are called new.
		s.save(t, build, tenant, drivers.Batch{From: 10, To: 10, New: 2,
			Upserts: []domain.Document{document("older", 7, `{"stale": true}`), document("missing", 1, `{"stale": true}`), document("untouched", 10, `{"n": 5}`)},
			Deletes: []drivers.Deletion{{ID: "newer", Version: 9}}})
		untouched = document("untouched", 10, `{"n": 5}`)
		s.wantDocuments(t, build, tenant, repaired, newer, missing, untouched)
		// An empty repair only checks that the checkpoint still exists.
		s.save(t, build, tenant, drivers.Batch{From: 10, To: 10})
		s.wantCheckpoint(t, build, tenant, 10)
		// And the build continues as if nothing had been repaired.
		s.save(t, build, tenant, drivers.Batch{From: 10, To: 12, Upserts: []domain.Document{document("older", 11, `{"n": 6}`)}, Deletes: []drivers.Deletion{{ID: "missing", Version: 12}}})
		s.wantDocuments(t, build, tenant, document("older", 11, `{"n": 6}`), newer, untouched)
		s.wantCheckpoint(t, build, tenant, 12)
	})

	s.each(t, "into a build without a checkpoint, in any order", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		late, early, newer := document("late", 90, `{"n": 1}`), document("early", 2, `{"n": 2}`), document("newer", 8, `{"n": 3}`)
		for range 2 { // also if they exist, although they are called new
			s.save(t, build, tenant, drivers.Batch{New: 1, Upserts: []domain.Document{late}})
			s.save(t, build, tenant, drivers.Batch{New: 2, Upserts: []domain.Document{early, newer}, Deletes: []drivers.Deletion{{ID: "never there", Version: 7}}})
			s.save(t, build, tenant, drivers.Batch{})
			s.wantDocuments(t, build, tenant, late, early, newer)
			s.wantCheckpoint(t, build, tenant, 0)
		}
		for checkpoint, err := range s.driver.Checkpoints(t.Context(), build) {
			if err != nil || checkpoint.Tenant == tenant {
				t.Errorf("Checkpoints yields %v, %v for a build without a checkpoint", checkpoint, err)
			}
		}
		s.save(t, build, tenant, drivers.Batch{Upserts: []domain.Document{document("newer", 7, `{"stale": true}`)}, Deletes: []drivers.Deletion{{ID: "late", Version: 89}, {ID: "early", Version: 3}}})
		s.wantDocuments(t, build, tenant, late, newer)
		// The first checkpoint may be anywhere, and ends it.
		s.save(t, build, tenant, drivers.Batch{To: 90})
		s.wantCheckpoint(t, build, tenant, 90)
		wantError(t, s.driver.Save(t.Context(), build, tenant, drivers.Batch{Upserts: []domain.Document{document("newer", 91, `{}`)}}), drivers.ErrStale)
		s.wantDocuments(t, build, tenant, late, newer)
	})

	s.each(t, "only at the checkpoint, or nothing is kept", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		stale := func(at int64) {
			t.Helper()
			for _, batch := range []drivers.Batch{
				{From: at, To: at},
				{From: at, To: at, Upserts: []domain.Document{document("a", at, `{"stale": true}`), document("new", 1, `{}`)}, New: 2},
				{From: at, To: at, Upserts: []domain.Document{document("a", at, `{"stale": true}`), document("new", 1, `{}`)}},
				{From: at, To: at, Deletes: []drivers.Deletion{{ID: "b", Version: at}}},
			} {
				wantError(t, s.driver.Save(t.Context(), build, tenant, batch), drivers.ErrStale)
			}
		}
		stale(5)
		s.wantDocuments(t, build, tenant)
		s.wantCheckpoint(t, build, tenant, 0)
		kept := []domain.Document{document("a", 1, `{"kept": true}`), document("b", 2, `{"kept": true}`)}
		s.save(t, build, tenant, drivers.Batch{To: 5, Upserts: kept})
		for _, at := range []int64{4, 6, 1 << 40} {
			stale(at)
			s.wantDocuments(t, build, tenant, kept...)
			s.wantCheckpoint(t, build, tenant, 5)
		}
	})

	s.each(t, "by its rules", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		kept := document("kept", 5, `{"kept": true}`)
		s.save(t, build, tenant, drivers.Batch{To: 5, Upserts: []domain.Document{kept}})
		for name, batch := range map[string]drivers.Batch{
			"back to none":        {From: 5},
			"version 0":           {From: 5, To: 5, Upserts: []domain.Document{document("x", 0, `{}`)}},
			"version too new":     {From: 5, To: 5, Upserts: []domain.Document{document("x", 6, `{}`)}},
			"deletion of nothing": {From: 5, To: 5, Deletes: []drivers.Deletion{{ID: "kept"}}},
			"deletion too new":    {From: 5, To: 5, Deletes: []drivers.Deletion{{ID: "kept", Version: 6}}},
			"one id twice":        {From: 5, To: 5, Upserts: []domain.Document{document("x", 1, `{}`), document("x", 2, `{}`)}},
		} {
			t.Run(name, func(t *testing.T) {
				wantCode(t, s.driver.Save(t.Context(), build, tenant, batch), domain.CodeInvalidRequest)
				s.wantDocuments(t, build, tenant, kept)
				s.wantCheckpoint(t, build, tenant, 5)
			})
		}
	})
}
