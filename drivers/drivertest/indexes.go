package drivertest

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// indexes are tests of tenants' own builds that declare paths. Other subjects test what queries of them return.
func (s *suite) indexes(t *testing.T) {
	if s.SharedOnly {
		return
	}
	t.Parallel()
	parallel(t, "documents that an earlier release saved without them", s.savedWithoutIndexes)
	parallel(t, "another build, a removal, and another tenant", s.indexesApart)
}

// savedWithoutIndexes saves a part of the documents as a release that ignores the declared paths.
func (s *suite) savedWithoutIndexes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tenant := domain.NewTenantID()
		build := s.ownIndexed(tenant)
		bare := build
		bare.Indexes = nil
		defer func() {
			if err := s.driver.DropTenant(context.Background(), build, tenant); err != nil {
				t.Errorf("DropTenant: %v", err)
			}
		}()
		w, stored := drawWorld(t), newContents(nil)
		for range rapid.IntRange(1, 4).Draw(t, "saves") {
			by := build
			if rapid.IntRange(0, 2).Draw(t, "release") == 0 {
				by = bare
			}
			from := stored.checkpoint
			batch := drivers.Batch{From: from, To: from + 1}
			documents := w.documents(t, from+1)
			for i, document := range documents {
				switch rapid.IntRange(0, 3).Draw(t, "change") {
				case 0:
					batch.Deletes = append(batch.Deletes, drivers.Deletion{ID: document.ID, Version: from + 1})
				case 1, 2:
					document.Data = documents[(i+int(from))%len(documents)].Data
					batch.Upserts = append(batch.Upserts, document)
				}
			}
			s.save(t, by, tenant, batch)
			stored.apply(batch)
		}
		for range 4 {
			query := domain.DocumentQuery{Where: w.drawPredicate(t, 1), Order: w.drawOrder(t), Limit: rapid.SampledFrom([]int{3, 7, 1, 1000}).Draw(t, "limit")}
			if len(query.Order) > 1 && rapid.Bool().Draw(t, "one path") {
				query.Order = query.Order[:1]
			}
			if hasPattern(query.Where) || rapid.Bool().Draw(t, "all") {
				query.Where = nil
			}
			found, err := s.pages(build, tenant, query)
			if err != nil {
				t.Fatalf("%s: %v", show(query), err)
			}
			want := answer(t, stored.documents(), query)
			if difference := differ(found, want); difference != "" {
				t.Fatalf("%s: %s", show(query), difference)
			}
			if count, err := s.driver.Count(context.Background(), build, tenant, query.Where); err != nil || count != int64(len(want)) {
				t.Fatalf("Count = %d, %v where %s; want %d", count, err, source(query.Where), len(want))
			}
		}
	})
}

// indexesApart changes and removes documents of builds with the same ids and values.
func (s *suite) indexesApart(t *testing.T) {
	tenant, other := domain.NewTenantID(), domain.NewTenantID()
	live := s.own(tenant)
	live.Indexes = []string{"a"}
	rebuilt := live
	rebuilt.Number = s.numbers.Add(1)
	rebuilt.Indexes = []string{"n", "a"}
	others := live
	others.Owner = other
	documents := func(of string, version int64, first, end int) (all []domain.Document) {
		for i := first; i < end; i++ {
			all = append(all, document(fmt.Sprintf("d%02d", i), version, fmt.Sprintf(`{"a": %d, "n": "%02d", "of": %q}`, i*7%10, end-i, of)))
		}
		return all
	}
	check := func(what string, build domain.Build, want []domain.Document) {
		t.Helper()
		a, n := domain.Order{Path: at("a")}, domain.Order{Path: at("n")}
		backwards := domain.Order{Path: at("a"), Descending: true}
		above := compared(at("a"), domain.GreaterOrEqual, num("4"))
		for _, query := range []domain.DocumentQuery{
			{Order: []domain.Order{a}}, {Order: []domain.Order{backwards}}, {Order: []domain.Order{n}}, {Order: []domain.Order{a, n}},
			{Where: above}, {Where: above, Order: []domain.Order{backwards}}, {Where: above, Order: []domain.Order{n}},
			{Where: compared(at("a"), domain.Equal, num("5"))}, {Where: tests(at("n"), domain.StartsWith, "0")},
		} {
			query.Limit = 5
			found, err := s.pages(build, build.Owner, query)
			if err != nil {
				t.Fatalf("%s: %s: %v", what, show(query), err)
			}
			if difference := differ(found, answer(t, want, query)); difference != "" {
				t.Errorf("%s: %s: %s", what, show(query), difference)
			}
		}
	}
	liveDocuments, rebuiltDocuments, otherDocuments := documents("live", 1, 0, 12), documents("rebuilt", 3, 0, 16), documents("other", 1, 4, 18)
	s.save(t, live, tenant, drivers.Batch{To: 1, Upserts: liveDocuments})
	s.save(t, others, other, drivers.Batch{To: 1, Upserts: otherDocuments})
	s.save(t, rebuilt, tenant, drivers.Batch{Upserts: rebuiltDocuments[:8]}) // a fill
	s.save(t, rebuilt, tenant, drivers.Batch{Upserts: rebuiltDocuments[8:]})
	s.save(t, rebuilt, tenant, drivers.Batch{To: 3})
	check("beside a rebuild", live, liveDocuments)
	check("after a fill", rebuilt, rebuiltDocuments)

	changed := document("d03", 4, `{"a": [1], "n": "x"}`)
	s.save(t, rebuilt, tenant, drivers.Batch{From: 3, To: 4, Upserts: []domain.Document{changed}, Deletes: []drivers.Deletion{{ID: "d00", Version: 4}, {ID: "d15", Version: 4}}})
	rebuiltDocuments = rebuiltDocuments[1:15]
	rebuiltDocuments[2] = changed
	check("after a change and a removal", rebuilt, rebuiltDocuments)
	rebuiltDocuments = append(rebuiltDocuments, document("d15", 5, `{"a": 5, "n": "00"}`))
	s.save(t, rebuilt, tenant, drivers.Batch{From: 4, To: 5, Upserts: rebuiltDocuments[14:]})
	check("after a document has come back", rebuilt, rebuiltDocuments)

	if err := s.driver.DropTable(t.Context(), live); err != nil {
		t.Fatalf("DropTable: %v", err)
	}
	check("a build that was dropped", live, nil)
	check("after the build before was dropped", rebuilt, rebuiltDocuments)
	check("another tenant's build of the same number", others, otherDocuments)
	if err := s.driver.DropTenant(t.Context(), rebuilt, tenant); err != nil {
		t.Fatalf("DropTenant: %v", err)
	}
	check("a tenant that was dropped", rebuilt, nil)
	check("another tenant", others, otherDocuments)
}
