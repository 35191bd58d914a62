package drivertest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

func (s *suite) tables(t *testing.T) {
	t.Parallel()
	s.each(t, "making a table again changes nothing", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		kept := document("a", 1, `{"kept": true}`)
		s.save(t, build, tenant, drivers.Batch{To: 1, Upserts: []domain.Document{kept}})
		if err := s.driver.CreateTemporaryTable(t.Context(), build); err != nil {
			t.Fatalf("CreateTemporaryTable: %v", err)
		}
		s.wantDocuments(t, build, tenant, kept)
		s.wantCheckpoint(t, build, tenant, 1)
	})

	parallel(t, "several processes make one table at once", func(t *testing.T) {
		build := s.withoutTable()
		var wait sync.WaitGroup
		for range 4 {
			driver := s.open(t)
			for range 2 {
				wait.Go(func() {
					if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
						t.Errorf("CreateTemporaryTable: %v", err)
					}
				})
			}
		}
		wait.Wait()
		tenant := domain.NewTenantID()
		s.save(t, build, tenant, drivers.Batch{To: 1})
		s.wantCheckpoint(t, build, tenant, 1)
	})

	parallel(t, "a table that does not exist is ErrNoTable", func(t *testing.T) {
		dropped := s.shared(t)
		tenant := domain.NewTenantID()
		// The connections know the statements from the time when the table existed.
		s.save(t, dropped, tenant, drivers.Batch{To: 1, Upserts: []domain.Document{document("a", 1, `{}`)}})
		s.wantDocuments(t, dropped, tenant, document("a", 1, `{}`))
		if err := s.driver.DropTable(t.Context(), dropped); err != nil {
			t.Fatalf("DropTable: %v", err)
		}
		for name, build := range map[string]domain.Build{"never made": s.withoutTable(), "dropped": dropped} {
			for method, call := range map[string]func(ctx context.Context) error{
				"IndexTable": func(ctx context.Context) error { return s.driver.IndexTable(ctx, build) },
				"Load": func(ctx context.Context) error {
					_, err := s.driver.Load(ctx, build, tenant, []string{"a"})
					return err
				},
				"Save": func(ctx context.Context) error {
					return s.driver.Save(ctx, build, tenant, drivers.Batch{To: 1, Upserts: []domain.Document{document("a", 1, `{}`)}})
				},
				"Save of nothing": func(ctx context.Context) error {
					return s.driver.Save(ctx, build, tenant, drivers.Batch{From: 1, To: 2})
				},
				"Checkpoint": func(ctx context.Context) error {
					_, err := s.driver.Checkpoint(ctx, build, tenant)
					return err
				},
				"Checkpoints": func(ctx context.Context) (err error) {
					for _, err = range s.driver.Checkpoints(ctx, build) {
					}
					return err
				},
				"Get": func(ctx context.Context) error {
					_, _, err := s.driver.Get(ctx, build, tenant, "a")
					return err
				},
				"Query": func(ctx context.Context) error {
					_, err := s.driver.Query(ctx, build, tenant, domain.DocumentQuery{Limit: 1})
					return err
				},
				"Count": func(ctx context.Context) error {
					_, err := s.driver.Count(ctx, build, tenant, nil)
					return err
				},
				"Explain": func(ctx context.Context) error {
					_, err := s.driver.Explain(ctx, build, tenant, domain.DocumentQuery{Limit: 1})
					return err
				},
			} {
				t.Run(name+" "+method, func(t *testing.T) { wantError(t, call(t.Context()), drivers.ErrNoTable) })
			}
			if err := s.driver.DropTable(t.Context(), build); err != nil {
				t.Errorf("%s: DropTable: %v", name, err)
			}
			if err := s.driver.DropTenant(t.Context(), build, tenant); err != nil {
				t.Errorf("%s: DropTenant: %v", name, err)
			}
		}
	})

	parallel(t, "dropping a table leaves other builds", func(t *testing.T) {
		tenant := domain.NewTenantID()
		sharedOld := s.shared(t)
		sharedNew := sharedOld
		sharedNew.Number = s.numbers.Add(1)
		if err := s.driver.CreateTemporaryTable(t.Context(), sharedNew); err != nil {
			t.Fatalf("CreateTemporaryTable: %v", err)
		}
		ownOld := s.own(tenant)
		ownNew := ownOld
		ownNew.Number = s.numbers.Add(1)
		kept := document("a", 1, `{"kept": true}`)
		for _, build := range []domain.Build{sharedOld, sharedNew, ownOld, ownNew} {
			s.save(t, build, tenant, drivers.Batch{To: 1, Upserts: []domain.Document{kept}})
		}
		for _, build := range []domain.Build{sharedOld, ownOld} {
			if err := s.driver.DropTable(t.Context(), build); err != nil {
				t.Fatalf("DropTable: %v", err)
			}
		}
		for _, build := range []domain.Build{sharedNew, ownNew} {
			s.wantDocuments(t, build, tenant, kept)
			s.wantCheckpoint(t, build, tenant, 1)
		}
		s.wantDocuments(t, ownOld, tenant)
		s.wantCheckpoint(t, ownOld, tenant, 0)
		// A dropped table can be created again, and is empty.
		if err := s.driver.CreateTemporaryTable(t.Context(), sharedOld); err != nil {
			t.Fatalf("CreateTemporaryTable: %v", err)
		}
		s.wantDocuments(t, sharedOld, tenant)
		s.wantCheckpoint(t, sharedOld, tenant, 0)
	})

	parallel(t, "a large build of a tenant's own is dropped whole", func(t *testing.T) {
		tenant := domain.NewTenantID()
		build := s.own(tenant)
		n := s.many(12_345)
		batch := drivers.Batch{To: 1}
		for i := range n {
			batch.Upserts = append(batch.Upserts, document(fmt.Sprintf("d%d", i), 1, `{}`))
		}
		s.save(t, build, tenant, batch)
		if count, err := s.driver.Count(t.Context(), build, tenant, nil); err != nil || count != n {
			t.Fatalf("Count = %d, %v; want %d", count, err, n)
		}
		if err := s.driver.DropTable(t.Context(), build); err != nil {
			t.Fatalf("DropTable: %v", err)
		}
		s.wantDocuments(t, build, tenant)
		s.wantCheckpoint(t, build, tenant, 0)
	})

	s.each(t, "dropping a tenant leaves nothing of it and everything else", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		other, rest := build, domain.NewTenantID()
		other.Number = s.numbers.Add(1)
		if err := s.driver.CreateTemporaryTable(t.Context(), other); err != nil {
			t.Fatalf("CreateTemporaryTable: %v", err)
		}
		kept := document("a", 1, `{"kept": true}`)
		s.save(t, build, tenant, drivers.Batch{To: 1, Upserts: []domain.Document{kept}})
		s.save(t, other, tenant, drivers.Batch{To: 1, Upserts: []domain.Document{kept}})
		if build.Shared() {
			s.save(t, build, rest, drivers.Batch{To: 1, Upserts: []domain.Document{kept}})
		}
		for range 2 {
			if err := s.driver.DropTenant(t.Context(), build, tenant); err != nil {
				t.Fatalf("DropTenant: %v", err)
			}
			s.wantDocuments(t, build, tenant)
			s.wantCheckpoint(t, build, tenant, 0)
		}
		s.wantDocuments(t, other, tenant, kept)
		s.wantCheckpoint(t, other, tenant, 1)
		if build.Shared() {
			s.wantDocuments(t, build, rest, kept)
			s.wantCheckpoint(t, build, rest, 1)
		}
		err := s.driver.Save(t.Context(), build, tenant, drivers.Batch{From: 1, To: 2, Upserts: []domain.Document{document("b", 2, `{}`)}})
		wantError(t, err, drivers.ErrStale)
		s.wantDocuments(t, build, tenant)
	})

	s.large(t, "indexes change only speed", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		build.Indexes = []string{"status", "customer.name", "odd 'path\".with \\quotes", strings.Repeat("long.", 40) + "1", strings.Repeat("long.", 40) + "2"}
		documents := []domain.Document{
			document("scalar", 1, `{"status": "placed", "customer": {"name": "é"}}`),
			document("number", 1, `{"status": 12345678901234567890, "customer": {"name": 1e300}}`),
			document("absent", 1, `{"customer": null}`),
			document("nested", 1, `{"status": {"a": [1, 2, 3]}, "customer": {"name": ["x"]}}`),
			document("long", 1, `{"status": "`+strings.Repeat("0123456789abcdef", 10_000)+`"}`),
			document("many", 1, `{"status": [`+strings.Repeat("1,", 50_000)+`1]}`),
		}
		s.save(t, build, tenant, drivers.Batch{To: 1, Upserts: documents})
		for range 2 {
			if err := s.driver.IndexTable(t.Context(), build); err != nil {
				t.Fatalf("IndexTable: %v", err)
			}
		}
		s.wantDocuments(t, build, tenant, documents...)
		for i := range documents {
			documents[i].Version = 2
		}
		s.save(t, build, tenant, drivers.Batch{From: 1, To: 2, Upserts: documents})
		s.wantDocuments(t, build, tenant, documents...)
	})

	parallel(t, "long names that begin alike are kept apart", func(t *testing.T) {
		tenant := domain.NewTenantID()
		long := "p" + strings.Repeat("-long", 19)
		var builds []domain.Build
		for _, name := range []string{long + "1", long + "2"} {
			for range 2 {
				build := domain.Build{ProjectionID: domain.ProjectionID{Name: name}, Number: s.numbers.Add(1)}
				if err := s.driver.CreateTemporaryTable(t.Context(), build); err != nil {
					t.Fatalf("CreateTemporaryTable: %v", err)
				}
				builds = append(builds, build)
			}
		}
		for i, build := range builds {
			s.save(t, build, tenant, drivers.Batch{To: 1, Upserts: []domain.Document{document("a", 1, fmt.Sprintf(`{"n": %d}`, i))}})
		}
		for i, build := range builds {
			s.wantDocuments(t, build, tenant, document("a", 1, fmt.Sprintf(`{"n": %d}`, i)))
		}
	})
}
