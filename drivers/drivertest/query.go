package drivertest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

func (s *suite) queries(t *testing.T) {
	t.Parallel()
	s.each(t, "pages in the order of bytes", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		ids := slices.Clone(oddIDs)
		for i := range s.times(50, 10) {
			ids = append(ids, fmt.Sprintf("%03d", i))
		}
		batch := drivers.Batch{To: 1}
		for _, id := range ids {
			batch.Upserts = append(batch.Upserts, document(id, 1, `{}`))
		}
		s.save(t, build, tenant, batch)
		slices.Sort(ids) // Go compares strings as bytes
		for _, limit := range []int{1, 7, len(ids), len(ids) + 1, math.MaxInt32} {
			documents, err := s.pages(build, tenant, domain.DocumentQuery{Limit: limit})
			if err != nil {
				t.Fatalf("Query with limit %d: %v", limit, err)
			}
			var got []string
			for _, document := range documents {
				got = append(got, document.ID)
			}
			if !slices.Equal(got, ids) {
				t.Fatalf("Query with limit %d gives\n%q, want\n%q", limit, got, ids)
			}
		}
		for _, after := range []string{"", "0", "00", "a", "a\x7f", "zzzz", ids[len(ids)-1], "\U0010ffff\U0010ffff", strings.Repeat("5", 600)} {
			page, err := s.driver.Query(t.Context(), build, tenant, domain.DocumentQuery{After: &domain.SortKey{ID: after}, Limit: 3})
			if err != nil {
				t.Fatalf("Query after %q: %v", after, err)
			}
			var got []string
			for _, document := range page {
				got = append(got, document.ID)
			}
			from, there := slices.BinarySearch(ids, after)
			if there {
				from++
			}
			if want := ids[from:min(from+3, len(ids))]; !slices.Equal(got, want) {
				t.Errorf("Query after %q gives %q, want %q", after, got, want)
			}
		}
	})

	s.large(t, "pages end with the document that fills them", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		batch, n := drivers.Batch{To: 1}, s.times(40, 15)
		for i := range n {
			text, bytes := strings.Repeat("x", 100*(i%7)), i%3
			batch.Upserts = append(batch.Upserts, document(fmt.Sprintf("%02d", i), 1, fmt.Sprintf(`{"a": %q, "b": %d, "c": [%d]}`, text, bytes, i)))
		}
		s.save(t, build, tenant, batch)
		for _, order := range [][]domain.Order{nil, {{Path: domain.Path{"b"}}}, {{Path: domain.Path{"c"}}}, {{Path: domain.Path{"b"}, Descending: true}, {Path: domain.Path{"a"}}}} {
			for _, most := range []int{1, 150, 1000, 1 << 20} {
				got, err := s.pages(build, tenant, domain.DocumentQuery{Order: order, Limit: n * 5 / 8, MaxBytes: most})
				if err != nil || len(got) != len(batch.Upserts) {
					t.Fatalf("in the order %v, in pages of %d bytes, there are %d documents, %v; want %d", order, most, len(got), err, len(batch.Upserts))
				}
			}
		}
	})

	s.each(t, "an empty build", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		s.wantDocuments(t, build, tenant)
		s.save(t, build, tenant, drivers.Batch{To: 5})
		s.wantDocuments(t, build, tenant) // the checkpoint is not a document
	})

	s.each(t, "invalid queries", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		for _, query := range []domain.DocumentQuery{{}, {Limit: -1}, {Limit: 1, MaxBytes: -1}, {After: &domain.SortKey{ID: "\xff"}, Limit: 1}, {After: &domain.SortKey{ID: "a\x00"}, Limit: 1}} {
			_, err := s.driver.Query(t.Context(), build, tenant, query)
			wantCode(t, err, domain.CodeInvalidRequest)
		}
	})

	s.large(t, "paging beside saves misses and doubles nothing", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		batch, stay := drivers.Batch{To: 1}, int64(s.times(500, 100))
		want := make(map[string]bool)
		for i := range stay {
			id := fmt.Sprintf("stays %03d", i)
			want[id] = true
			batch.Upserts = append(batch.Upserts, document(id, 1, `{}`))
		}
		s.save(t, build, tenant, batch)
		stop := make(chan struct{})
		var saver sync.WaitGroup
		saver.Go(func() {
			for at := int64(1); ; at++ {
				select {
				case <-stop:
					return
				default:
				}
				// Some stay and get new versions, others come between them and go with the next save.
				next := drivers.Batch{From: at, To: at + 1}
				for i := range int64(10) {
					next.Upserts = append(next.Upserts,
						document(fmt.Sprintf("stays %03d", (at*10+i)%stay), at+1, fmt.Sprintf(`{"at": %d}`, at)),
						document(fmt.Sprintf("stays %03d and goes %d", (at*37+i*stay/10)%stay, at), at+1, `{}`))
					if at > 1 {
						next.Deletes = append(next.Deletes, drivers.Deletion{ID: fmt.Sprintf("stays %03d and goes %d", ((at-1)*37+i*stay/10)%stay, at-1), Version: at + 1})
					}
				}
				if err := s.driver.Save(t.Context(), build, tenant, next); err != nil {
					t.Errorf("Save: %v", err)
					return
				}
			}
		})
		for range s.times(5, 3) {
			documents, err := s.pages(build, tenant, domain.DocumentQuery{Limit: 17})
			if err != nil {
				t.Errorf("Query: %v", err)
				break
			}
			seen := make(map[string]bool)
			for _, document := range documents {
				if want[document.ID] && seen[document.ID] {
					t.Errorf("%q is on two pages", document.ID)
				}
				seen[document.ID] = true
			}
			for id := range want {
				if !seen[id] {
					t.Errorf("%q is on no page", id)
				}
			}
		}
		close(stop)
		saver.Wait()
	})
}
