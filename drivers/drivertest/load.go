package drivertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// impossible are texts that no document can have as its id; the empty one is the checkpoint's.
var impossible = []string{"", "a\x00", "\xff", strings.Repeat("x", domain.MaxDocumentIDBytes+1)}

func (s *suite) loads(t *testing.T) {
	t.Parallel()
	s.each(t, "those that are there, each once", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		s.save(t, build, tenant, drivers.Batch{To: 9, Upserts: []domain.Document{
			document("a", 1, `{"n": 1}`), document("b", 2, `{"n": 2}`), document("c", 3, `{"n": 3}`),
		}})
		for _, want := range []struct{ ids, found []string }{
			{nil, nil},
			{[]string{"x"}, nil},
			{[]string{"A", "a ", " a", "a\t", "ab"}, nil},
			{[]string{"b"}, []string{"b"}},
			{[]string{"c", "x", "a"}, []string{"a", "c"}},
			{[]string{"a", "b", "a", "a"}, []string{"a", "b"}},
			{impossible, nil},
			{append([]string{"c"}, impossible...), []string{"c"}},
		} {
			documents, err := s.driver.Load(t.Context(), build, tenant, want.ids)
			if err != nil {
				t.Fatalf("Load(%q): %v", want.ids, err)
			}
			var found []string
			for _, document := range documents {
				found = append(found, document.ID)
			}
			if slices.Sort(found); !slices.Equal(found, want.found) {
				t.Errorf("Load(%q) gives %q, want %q", want.ids, found, want.found)
			}
		}
		for _, id := range append([]string{"x", "A", "a "}, impossible...) {
			if document, ok, err := s.driver.Get(t.Context(), build, tenant, id); err != nil || ok {
				t.Errorf("Get(%q) = %v, %t, %v; want nothing", id, document, ok, err)
			}
		}
	})

	s.each(t, "many at once", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		n := s.many(20_000)
		batch := drivers.Batch{To: n}
		ids := make([]string, 0, 2*n)
		for i := range n {
			id := fmt.Sprintf("%d-%s", i, strings.Repeat("x", int(i%100)))
			batch.Upserts = append(batch.Upserts, document(id, i+1, fmt.Sprintf(`{"n": %d}`, i)))
			ids = append(ids, id, "not "+id)
		}
		s.save(t, build, tenant, batch)
		documents, err := s.driver.Load(t.Context(), build, tenant, ids)
		if err != nil {
			t.Fatalf("Load: %v", err)
		}
		if len(documents) != int(n) {
			t.Errorf("Load gives %d documents, want %d", len(documents), n)
		}
	})
}
