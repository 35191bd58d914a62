package drivertest

import (
	"strings"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// public tests SwapTable and the names for people.
func (s *suite) public(t *testing.T) {
	t.Parallel()
	parallel(t, "swapping a tenant's own does nothing", func(t *testing.T) {
		tenant := domain.NewTenantID()
		build := s.own(tenant)
		s.save(t, build, tenant, drivers.Batch{To: 1, Upserts: []domain.Document{document("a", 1, `{}`)}})
		if err := s.driver.SwapTable(t.Context(), build, nil); err != nil {
			t.Fatalf("SwapTable: %v", err)
		}
		s.wantDocuments(t, build, tenant, document("a", 1, `{}`))
		if s.place.Public != nil {
			if _, ok := s.place.Public(t, build.Name); ok {
				t.Error("a tenant's own projection has a public name")
			}
		}
	})
	parallel(t, "a build that does not exist", func(t *testing.T) {
		wantError(t, s.driver.SwapTable(t.Context(), s.withoutTable(), nil), drivers.ErrNoTable)
	})
	parallel(t, "overrides that make no sense", func(t *testing.T) {
		build, own := s.shared(t), s.own(domain.NewTenantID())
		next, tenant := build, domain.NewTenantID()
		next.Number = s.numbers.Add(1)
		if err := s.driver.CreateTemporaryTable(t.Context(), next); err != nil {
			t.Fatalf("CreateTemporaryTable: %v", err)
		}
		for name, overrides := range map[string][]drivers.Override{
			"no tenant":                    {{Build: next}},
			"one tenant twice":             {{Tenant: tenant, Build: next}, {Tenant: tenant, Build: build}},
			"another projection's build":   {{Tenant: tenant, Build: s.shared(t)}},
			"a tenant's own build":         {{Tenant: own.Owner, Build: own}},
			"a tenant's own, by that name": {{Tenant: own.Owner, Build: domain.Build{ProjectionID: domain.ProjectionID{Owner: own.Owner, Name: build.Name}, Number: 1}}},
		} {
			t.Run(name, func(t *testing.T) {
				wantCode(t, s.driver.SwapTable(t.Context(), build, overrides), domain.CodeInvalidRequest)
			})
		}
		wantError(t, s.driver.SwapTable(t.Context(), build, []drivers.Override{{Tenant: tenant, Build: func() domain.Build {
			missing := build
			missing.Number = s.numbers.Add(1)
			return missing
		}()}}), drivers.ErrNoTable)
	})
	if s.place.Public == nil {
		return
	}
	s.overrides(t)
	one, two := domain.NewTenantID(), domain.NewTenantID()
	fill := func(t *testing.T, build domain.Build, to int64) {
		t.Helper()
		if err := s.driver.CreateTemporaryTable(t.Context(), build); err != nil {
			t.Fatalf("CreateTemporaryTable: %v", err)
		}
		for _, tenant := range []domain.TenantID{one, two} {
			s.save(t, build, tenant, drivers.Batch{To: to, Upserts: []domain.Document{document("a", to, `{}`), document("removed", to, `{}`)}})
			s.save(t, build, tenant, drivers.Batch{From: to, To: to + 1, Deletes: []drivers.Deletion{{ID: "removed", Version: to + 1}}})
		}
	}
	want := func(t *testing.T, name string, version int64) {
		t.Helper()
		rows, ok := s.place.Public(t, name)
		if !ok {
			t.Fatal("there is no public name")
		}
		seen := make(map[PublicDocument]int)
		for _, row := range rows {
			seen[row]++
		}
		for _, tenant := range []domain.TenantID{one, two} {
			if seen[PublicDocument{tenant, "a", version}] != 1 {
				t.Errorf("version %d of tenant %s's document does not exist exactly once: %v", version, tenant, rows)
			}
		}
		if len(rows) != 2 {
			t.Errorf("there are %d rows, want 2, and neither checkpoints nor removed documents among them: %v", len(rows), rows)
		}
	}
	parallel(t, "the name follows the swaps", func(t *testing.T) {
		build := s.withoutTable()
		next := build
		next.Number = s.numbers.Add(1)
		fill(t, build, 10)
		fill(t, next, 20)
		if _, ok := s.place.Public(t, build.Name); ok {
			t.Fatal("the name is there before the first swap")
		}
		for _, step := range []domain.Build{build, build, next, build, next} {
			if err := s.driver.SwapTable(t.Context(), step, nil); err != nil {
				t.Fatalf("SwapTable: %v", err)
			}
			want(t, build.Name, map[int64]int64{build.Number: 10, next.Number: 20}[step.Number])
		}
		if err := s.driver.DropTable(t.Context(), build); err != nil {
			t.Fatalf("DropTable: %v", err)
		}
		want(t, build.Name, 20)
		if err := s.driver.DropTable(t.Context(), next); err != nil {
			t.Fatalf("DropTable: %v", err)
		}
		if _, ok := s.place.Public(t, build.Name); ok {
			t.Error("the name outlives the build that it pointed at")
		}
	})
	parallel(t, "several processes swap at once", func(t *testing.T) {
		build := s.withoutTable()
		fill(t, build, 10)
		var wait sync.WaitGroup
		for range 4 {
			driver := s.open(t)
			wait.Go(func() {
				if err := driver.SwapTable(t.Context(), build, nil); err != nil {
					t.Errorf("SwapTable: %v", err)
				}
			})
		}
		wait.Wait()
		want(t, build.Name, 10)
	})
	for _, name := range []string{
		"documents", "p" + strings.Repeat("-long", 19), "process.state",
		"document_keys", "replica_beacons", "documents.public", "documents.tenant", "system.state", "system", // close to names that databases use
	} {
		parallel(t, "the name "+name[:min(len(name), 16)], func(t *testing.T) {
			build := domain.Build{ProjectionID: domain.ProjectionID{Name: name}, Number: s.numbers.Add(1)}
			fill(t, build, 10)
			if err := s.driver.SwapTable(t.Context(), build, nil); err != nil {
				t.Fatalf("SwapTable: %v", err)
			}
			want(t, name, 10)
		})
	}
}

// overrides tests public names that show some tenants' documents from other builds.
func (s *suite) overrides(t *testing.T) {
	// live returns builds of one projection. Each has one document of each tenant, a removed one, and its number as the
	// version of all.
	live := func(t *testing.T, builds int, tenants ...domain.TenantID) []domain.Build {
		t.Helper()
		first := s.withoutTable()
		all := make([]domain.Build, builds)
		for i := range all {
			all[i] = first
			all[i].Number = s.numbers.Add(2) // the last version is one above the number
			if err := s.driver.CreateTemporaryTable(t.Context(), all[i]); err != nil {
				t.Fatalf("CreateTemporaryTable: %v", err)
			}
			at := all[i].Number
			for _, tenant := range tenants {
				s.save(t, all[i], tenant, drivers.Batch{To: at, Upserts: []domain.Document{document("a", at, `{}`), document("removed", at, `{}`)}})
				s.save(t, all[i], tenant, drivers.Batch{From: at, To: at + 1, Deletes: []drivers.Deletion{{ID: "removed", Version: at + 1}}})
			}
		}
		return all
	}
	// want compares what is shown with the build from which each tenant's document should come.
	want := func(t *testing.T, name string, want map[domain.TenantID]domain.Build) {
		t.Helper()
		rows, ok := s.place.Public(t, name)
		if !ok {
			t.Fatal("there is no public name")
		}
		seen := make(map[domain.TenantID]bool)
		for _, row := range rows {
			if build, ok := want[row.Tenant]; !ok || seen[row.Tenant] || row.ID != "a" || row.Version != build.Number {
				t.Errorf("%+v is shown, want one document of each tenant, of this one from build %d", row, want[row.Tenant].Number)
			}
			seen[row.Tenant] = true
		}
		if len(rows) != len(want) {
			t.Errorf("there are %d rows, want %d", len(rows), len(want))
		}
	}
	swap := func(t *testing.T, build domain.Build, overrides ...drivers.Override) {
		t.Helper()
		for range 2 { // it may be repeated
			if err := s.driver.SwapTable(t.Context(), build, overrides); err != nil {
				t.Fatalf("SwapTable: %v", err)
			}
		}
	}

	parallel(t, "the name shows some tenants' documents from their own builds", func(t *testing.T) {
		one, two, three, nobody := domain.NewTenantID(), domain.NewTenantID(), domain.NewTenantID(), domain.NewTenantID()
		all := live(t, 3, one, two, three)
		first, second, third := all[0], all[1], all[2]
		swap(t, first, drivers.Override{Tenant: one, Build: second})
		want(t, first.Name, map[domain.TenantID]domain.Build{one: second, two: first, three: first})
		swap(t, first, drivers.Override{Tenant: one, Build: second}, drivers.Override{Tenant: two, Build: third}, drivers.Override{Tenant: nobody, Build: third})
		want(t, first.Name, map[domain.TenantID]domain.Build{one: second, two: third, three: first})
		swap(t, first, drivers.Override{Tenant: two, Build: second}, drivers.Override{Tenant: one, Build: second})
		want(t, first.Name, map[domain.TenantID]domain.Build{one: second, two: second, three: first})
		swap(t, first, drivers.Override{Tenant: one, Build: second}, drivers.Override{Tenant: three, Build: second})
		want(t, first.Name, map[domain.TenantID]domain.Build{one: second, two: first, three: second})
		swap(t, first, drivers.Override{Tenant: one, Build: first}) // its documents come from there anyway
		want(t, first.Name, map[domain.TenantID]domain.Build{one: first, two: first, three: first})
		swap(t, third, drivers.Override{Tenant: one, Build: second})
		want(t, first.Name, map[domain.TenantID]domain.Build{one: second, two: third, three: third})
		swap(t, third)
		want(t, first.Name, map[domain.TenantID]domain.Build{one: third, two: third, three: third})
		// A build that is no longer shown can be dropped. Dropping one that is shown for a tenant also removes the
		// name.
		if err := s.driver.DropTable(t.Context(), first); err != nil {
			t.Fatalf("DropTable: %v", err)
		}
		want(t, first.Name, map[domain.TenantID]domain.Build{one: third, two: third, three: third})
		swap(t, third, drivers.Override{Tenant: one, Build: second})
		if err := s.driver.DropTable(t.Context(), second); err != nil {
			t.Fatalf("DropTable: %v", err)
		}
		if rows, ok := s.place.Public(t, first.Name); ok {
			t.Errorf("the name outlives one of the builds that it pointed at: %v", rows)
		}
		swap(t, third)
		want(t, first.Name, map[domain.TenantID]domain.Build{one: third, two: third, three: third})
	})

	parallel(t, "a thousand overrides", func(t *testing.T) {
		one, two, three := domain.NewTenantID(), domain.NewTenantID(), domain.NewTenantID()
		all := live(t, 4, one, two, three)
		overrides := []drivers.Override{{Tenant: one, Build: all[1]}, {Tenant: two, Build: all[2]}}
		for i := range 998 {
			overrides = append(overrides, drivers.Override{Tenant: domain.NewTenantID(), Build: all[1+i%3]})
		}
		swap(t, all[0], overrides...)
		want(t, all[0].Name, map[domain.TenantID]domain.Build{one: all[1], two: all[2], three: all[0]})
	})
}
