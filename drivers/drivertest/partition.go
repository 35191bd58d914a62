package drivertest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// partitions tests builds with PartitionBy, which changes only what is fast.
func (s *suite) partitions(t *testing.T) {
	t.Parallel()
	partitioned := func(t *testing.T, path string, indexes ...string) domain.Build {
		t.Helper()
		build := s.withoutTable()
		build.PartitionBy, build.Indexes = path, indexes
		if err := s.driver.CreateTemporaryTable(t.Context(), build); err != nil {
			t.Fatalf("CreateTemporaryTable: %v", err)
		}
		return build
	}
	parallel(t, "drawn questions of one partition", func(t *testing.T) {
		builds := []domain.Build{partitioned(t, "a", indexed...), partitioned(t, "a.b", indexed...)}
		for _, build := range builds {
			s.index(t, build)
		}
		rapid.Check(t, func(t *rapid.T) { s.drawnPartition(t, rapid.SampledFrom(builds).Draw(t, "build")) })
	})

	parallel(t, "values of any kind and length, before and after the index is made", func(t *testing.T) {
		build, tenant := partitioned(t, "a", "n", "n.b"), domain.NewTenantID()
		longest := strings.Repeat("\U0001f600", domain.MaxOrderedCharacters)
		values := []string{``, `null`, `1`, `1.5`, `-9223372036854775808`, `true`, `""`, `"` + longest + `"`, `"` + longest + `x"`, `"` + veryLong + `"`, `[]`, `["x", 1]`, `{}`, `{"b": ["x"]}`}
		batch := drivers.Batch{To: 1}
		for i, a := range values {
			for j, n := range values {
				var members []string
				if a != "" {
					members = append(members, `"a": `+a)
				}
				if n != "" {
					members = append(members, `"n": `+n)
				}
				id := string(rune('a'+i)) + string(rune('a'+j))
				id += strings.Repeat("i", domain.MaxDocumentIDBytes-len(id))
				batch.Upserts = append(batch.Upserts, document(id, 1, "{"+strings.Join(members, ", ")+"}"))
			}
		}
		s.save(t, build, tenant, batch)
		s.index(t, build)
		limit := s.times(5, 10)
		check := func() {
			t.Helper()
			s.wantDocuments(t, build, tenant, batch.Upserts...)
			for _, value := range []domain.Scalar{{}, num("1"), num("1.5"), num("-9223372036854775808"), {Kind: domain.ScalarBool, Bool: true}, text(""), text(longest), text(longest + "x"), text(veryLong), text("absent")} {
				for _, query := range []domain.DocumentQuery{
					{Where: compared(at("a"), domain.Equal, value), Limit: limit},
					{Where: domain.And{compared(at("n"), domain.Equal, value), compared(at("a"), domain.Equal, value)}, Limit: limit},
					{Where: domain.And{compared(at("a"), domain.Equal, value), contains(at("n"), text("x"))}, Limit: limit},
					{Where: compared(at("a"), domain.Equal, value), Order: []domain.Order{{Path: at("n"), Descending: true}}, Limit: limit},
				} {
					found, err := s.pages(build, tenant, query)
					if err != nil {
						t.Fatalf("%s: %v", show(query), err)
					}
					if difference := differ(found, answer(t, batch.Upserts, query)); difference != "" {
						t.Errorf("%s: %s", show(query), difference)
					}
				}
			}
		}
		check()
		next := drivers.Batch{From: 1, To: 2}
		for i := range batch.Upserts {
			// Each gets the next one's data, so it moves to another partition.
			next.Upserts = append(next.Upserts, domain.Document{ID: batch.Upserts[i].ID, Version: 2, Data: batch.Upserts[(i+len(values)+1)%len(batch.Upserts)].Data})
		}
		s.save(t, build, tenant, next)
		batch = next
		check()
	})
}

// drawnPartition runs drawn queries on the documents that have one value at the build's partition path.
func (s *suite) drawnPartition(t *rapid.T, build domain.Build) {
	tenant := domain.NewTenantID()
	w := drawWorld(t)
	if !slices.Contains(w.names, "a") {
		w.names = append(w.names, "a")
	}
	var values []any
	for i := range w.members {
		// A few values, so that partitions have several documents.
		value := rapid.SampledFrom([]any{"x", "x", "y", json.Number("1"), nil, w.members[i]["a"]}).Draw(t, "partition")
		if build.PartitionBy == "a.b" {
			w.members[i]["a"] = map[string]any{"b": value, "n": w.members[i]["n"]}
		} else {
			w.members[i]["a"] = value
		}
		switch value.(type) {
		case map[string]any, []any:
		default:
			values = append(values, value)
		}
	}
	documents := w.documents(t, 1)
	s.save(t, build, tenant, drivers.Batch{To: 1, Upserts: documents})
	defer func() {
		if err := s.driver.DropTenant(context.Background(), build, tenant); err != nil {
			t.Errorf("DropTenant: %v", err)
		}
	}()
	for range 4 {
		parts := domain.And{compared(strings.Split(build.PartitionBy, "."), domain.Equal, drawScalar(t, rapid.SampledFrom(append(values, "x")).Draw(t, "of")))}
		if rapid.IntRange(0, 4).Draw(t, "alone") > 0 {
			parts = append(parts, w.drawPredicate(t, 2))
		}
		slices.Reverse(parts[:rapid.IntRange(0, len(parts)).Draw(t, "reversed")])
		query := domain.DocumentQuery{Where: parts, Order: w.drawOrder(t), Limit: s.limit(t)}
		if rapid.IntRange(0, 5).Draw(t, "no partition") == 0 { // queries that the service never sends
			query.Where = parts[len(parts)-1]
		}
		if s.refusesPatterns(t, build, tenant, query) {
			continue
		}
		if count, err := s.driver.Count(context.Background(), build, tenant, query.Where); err != nil || count != int64(len(answer(t, documents, domain.DocumentQuery{Where: query.Where, Limit: len(documents)}))) {
			t.Fatalf("Count where %s gives %d, %v", source(query.Where), count, err)
		}
		found, err := s.pages(build, tenant, query)
		if err != nil {
			t.Fatalf("%s: %v", show(query), err)
		}
		if difference := differ(found, answer(t, documents, query)); difference != "" {
			t.Fatalf("%s: %s", show(query), difference)
		}
	}
}
