package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

func (s *suite) predicates(t *testing.T) {
	t.Parallel()
	s.eachIndexed(t, "traps", s.runTraps)
	s.eachIndexed(t, "drawn documents, predicates and orders", s.drawnQueries)
	parallel(t, "invalid queries", s.invalidQueries)
}

// eachIndexed runs a test on a shared build, on one with indexes, which the test has to create, and, except with
// SharedOnly, on a tenant's own, which declares the same. If the server is slow, there is no build without indexes.
func (s *suite) eachIndexed(t *testing.T, name string, test func(t *testing.T, build domain.Build, tenant domain.TenantID)) {
	if !s.Slow {
		parallel(t, name, func(t *testing.T) { test(t, s.shared(t), domain.NewTenantID()) })
	}
	if !s.SharedOnly {
		parallel(t, name+" of one tenant", func(t *testing.T) {
			tenant := domain.NewTenantID()
			test(t, s.ownIndexed(tenant), tenant)
		})
	}
	parallel(t, name+" with indexes", func(t *testing.T) {
		// As in production, the build declares its indexes when its table is created.
		build := s.withoutTable()
		build.Indexes = indexed
		if err := s.driver.CreateTemporaryTable(t.Context(), build); err != nil {
			t.Fatalf("CreateTemporaryTable: %v", err)
		}
		test(t, build, domain.NewTenantID())
	})
}

// ownIndexed returns a tenant's own build that declares indexes.
func (s *suite) ownIndexed(tenant domain.TenantID) domain.Build {
	build := s.own(tenant)
	build.Indexes = indexed
	return build
}

// runTraps saves the documents of all traps and runs each trap's query on all of them. If the server is slow, it uses
// some forty at a time, each batch with a separate tenant.
func (s *suite) runTraps(t *testing.T, build domain.Build, tenant domain.TenantID) {
	for some := range slices.Chunk(traps, s.times(len(traps), 40)) {
		s.runTrapsTogether(t, build, tenant, some)
		if tenant = domain.NewTenantID(); !build.Shared() {
			build = s.ownIndexed(tenant)
		}
	}
}

func (s *suite) runTrapsTogether(t *testing.T, build domain.Build, tenant domain.TenantID, traps []trap) {
	byID := make(map[string]domain.Document)
	batch := drivers.Batch{To: 1}
	for _, trap := range traps {
		document := document(trap.name, 1, trap.data)
		if _, twice := byID[trap.name]; twice {
			t.Fatalf("two traps are named %q", trap.name)
		}
		byID[trap.name] = document
		batch.Upserts = append(batch.Upserts, document)
	}
	s.save(t, build, tenant, batch)
	s.index(t, build)
	for _, trap := range traps {
		t.Run(trap.name, func(t *testing.T) {
			// The table itself is correct.
			match, err := domain.Match(trap.where, byID[trap.name])
			if err != nil || match != trap.matches {
				t.Fatalf("domain.Match gives %t, %v for %s on %s", match, err, source(trap.where), trap.data)
			}
			query := domain.DocumentQuery{Where: trap.where, Limit: len(traps)}
			if s.refusesPatterns(t, build, tenant, query) {
				return
			}
			found, err := s.driver.Query(t.Context(), build, tenant, query)
			if err != nil {
				t.Fatalf("Query where %s: %v", source(trap.where), err)
			}
			got := slices.ContainsFunc(found, func(d domain.Document) bool { return d.ID == trap.name })
			if got != trap.matches {
				t.Errorf("%s on %.200s: matches %t, want %t", source(trap.where), trap.data, got, trap.matches)
				return
			}
			if difference := differ(found, answer(t, batch.Upserts, query)); difference != "" {
				t.Errorf("where %s: %s", source(trap.where), difference)
			}
		})
	}
}

// index calls IndexTable if the build has indexes.
func (s *suite) index(t fatalf, build domain.Build) {
	t.Helper()
	if len(build.Indexes) == 0 {
		return
	}
	if err := s.driver.IndexTable(context.Background(), build); err != nil {
		t.Fatalf("IndexTable: %v", err)
	}
}

// drawnQueries runs a few drawn queries on drawn documents, many times. Each time uses a new tenant, beside others with
// the same ids.
func (s *suite) drawnQueries(t *testing.T, build domain.Build, tenant domain.TenantID) {
	s.index(t, build)
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		build, tenant := build, domain.NewTenantID()
		neighbour, neighbourBuild := domain.NewTenantID(), build
		if !build.Shared() {
			build = s.ownIndexed(tenant)
			neighbourBuild = build
			neighbourBuild.Owner = neighbour
		}
		w := drawWorld(t)
		documents := w.documents(t, 2)
		s.save(t, build, tenant, drivers.Batch{To: 2, Upserts: documents})
		others := w.documents(t, 1) // the neighbour's documents are recognized by their version
		slices.Reverse(others)
		s.save(t, neighbourBuild, neighbour, drivers.Batch{To: 1, Upserts: others})
		defer func() {
			for tenant, build := range map[domain.TenantID]domain.Build{tenant: build, neighbour: neighbourBuild} {
				if err := s.driver.DropTenant(ctx, build, tenant); err != nil {
					t.Errorf("DropTenant: %v", err)
				}
			}
		}()
		for range 4 {
			query := domain.DocumentQuery{
				Where: w.drawPredicate(t, 2),
				Order: w.drawOrder(t),
				Limit: s.limit(t),
			}
			if rapid.IntRange(0, 2).Draw(t, "nil") == 2 {
				query.Where = nil
			}
			if rapid.IntRange(0, 2).Draw(t, "after") == 2 {
				query.After = w.drawPlace(t, documents, query.Order)
			}
			if s.refusesPatterns(t, build, tenant, query) {
				continue
			}
			found, err := s.pages(build, tenant, query)
			if err != nil {
				t.Fatalf("%s: %v", show(query), err)
			}
			if difference := differ(found, answer(t, documents, query)); difference != "" {
				t.Fatalf("%s: %s", show(query), difference)
			}
			if explanation, err := s.driver.Explain(ctx, build, tenant, query); err != nil || explanation.Statement == "" {
				t.Fatalf("Explain %s gives %+v, %v; want a statement", show(query), explanation, err)
			}
			query.After = nil
			want := len(answer(t, documents, query))
			if count, err := s.driver.Count(ctx, build, tenant, query.Where); err != nil || count != int64(want) {
				t.Fatalf("Count = %d, %v where %s; want %d", count, err, source(query.Where), want)
			}
		}
	})
}

// answer returns what the contract requires as the result of a query, without its limit.
func answer(t fatalf, documents []domain.Document, query domain.DocumentQuery) []domain.Document {
	t.Helper()
	type placed struct {
		place    domain.SortKey
		document domain.Document
	}
	var found []placed
	for _, document := range documents {
		match, err := domain.Match(query.Where, document)
		if err != nil {
			t.Fatalf("domain.Match: %v", err)
		}
		place, err := domain.SortKeyOf(document, query.Order)
		if err != nil {
			t.Fatalf("domain.SortKeyOf: %v", err)
		}
		if match && (query.After == nil || place.Compare(*query.After, query.Order) > 0) {
			found = append(found, placed{place, document})
		}
	}
	slices.SortFunc(found, func(a, b placed) int { return a.place.Compare(b.place, query.Order) })
	sorted := make([]domain.Document, len(found))
	for i, one := range found {
		sorted[i] = one.document
	}
	return sorted
}

// differ describes how a query's documents differ from the wanted ones; empty: they do not.
func differ(got, want []domain.Document) string {
	describe := func(documents []domain.Document) string {
		var text strings.Builder
		for i, document := range documents {
			if i == 30 {
				fmt.Fprintf(&text, "\n  and %d more", len(documents)-i)
				break
			}
			fmt.Fprintf(&text, "\n  %.40q version %d: %.300s", document.ID, document.Version, document.Data)
		}
		return text.String()
	}
	without := func(documents, less []domain.Document) []domain.Document {
		return slices.DeleteFunc(slices.Clone(documents), func(document domain.Document) bool {
			return slices.ContainsFunc(less, func(other domain.Document) bool {
				return other.ID == document.ID && other.Version == document.Version
			})
		})
	}
	if surplus := without(got, want); len(surplus) > 0 {
		return "these documents do not belong there:" + describe(surplus)
	}
	if missing := without(want, got); len(missing) > 0 {
		return "these documents are missing:" + describe(missing)
	}
	if !slices.EqualFunc(got, want, func(a, b domain.Document) bool { return a.ID == b.ID }) {
		return "the order is" + describe(got) + "\nand should be" + describe(want)
	}
	for i := range got {
		if difference := compareJSON(want[i].Data, got[i].Data); difference != "" {
			return fmt.Sprintf("%q has other data: %s", got[i].ID, difference)
		}
	}
	return ""
}

// refusesPatterns reports whether the query has a pattern that the driver refuses, as it should.
func (s *suite) refusesPatterns(t fatalf, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) bool {
	t.Helper()
	if !s.NoPatterns || !hasPattern(query.Where) {
		return false
	}
	ctx := context.Background()
	_, ofQuery := s.driver.Query(ctx, build, tenant, query)
	_, ofCount := s.driver.Count(ctx, build, tenant, query.Where)
	_, ofExplain := s.driver.Explain(ctx, build, tenant, query)
	for method, err := range map[string]error{"Query": ofQuery, "Count": ofCount, "Explain": ofExplain} {
		refusal, ok := errors.AsType[*domain.Error](err)
		if !ok || refusal.Code != domain.CodeUnsupported || refusal.Where != "filter, line 1, column 7" {
			t.Fatalf("%s with a pattern gives %v; want the code %s and the place, filter, line 1, column 7", method, err, domain.CodeUnsupported)
		}
	}
	return true
}

func hasPattern(where domain.Predicate) bool {
	switch where := where.(type) {
	case domain.And:
		return slices.ContainsFunc(where, hasPattern)
	case domain.Or:
		return slices.ContainsFunc(where, hasPattern)
	case domain.Matches:
		return true
	}
	return false
}

// invalidQueries tests queries that break the rules: every method refuses them.
func (s *suite) invalidQueries(t *testing.T) {
	build, tenant := s.shared(t), domain.NewTenantID()
	s.save(t, build, tenant, drivers.Batch{To: 1, Upserts: []domain.Document{document("a", 1, `{}`)}})
	by := func(names ...string) (order []domain.Order) {
		for _, name := range names {
			order = append(order, domain.Order{Path: domain.Path{name}})
		}
		return order
	}
	for name, query := range map[string]domain.DocumentQuery{
		"no limit":                       {},
		"a negative limit":               {Limit: -1},
		"an id that is no UTF-8":         {Limit: 1, After: &domain.SortKey{ID: "\xff"}},
		"an id with U+0000":              {Limit: 1, After: &domain.SortKey{ID: "a\x00"}},
		"a text with U+0000":             {Limit: 1, Order: by("a"), After: &domain.SortKey{Values: []domain.Scalar{text("a\x00")}}},
		"too many parts in the order":    {Limit: 1, Order: by("a", "b", "c", "d")},
		"a place with too few values":    {Limit: 1, Order: by("a", "b"), After: &domain.SortKey{Values: []domain.Scalar{text("a")}}},
		"a place with too many":          {Limit: 1, After: &domain.SortKey{Values: []domain.Scalar{text("a")}}},
		"unordered where all is ordered": {Limit: 1, After: &domain.SortKey{Unordered: true}},
	} {
		_, err := s.driver.Query(t.Context(), build, tenant, query)
		if !domain.IsCode(err, domain.CodeInvalidRequest) {
			t.Errorf("%s: Query gives %v, want the code %s", name, err, domain.CodeInvalidRequest)
		}
		_, err = s.driver.Explain(t.Context(), build, tenant, query)
		if !domain.IsCode(err, domain.CodeInvalidRequest) {
			t.Errorf("%s: Explain gives %v, want the code %s", name, err, domain.CodeInvalidRequest)
		}
	}
}

// show formats a query for messages.
func show(query domain.DocumentQuery) string {
	text := "where " + source(query.Where)
	for i, part := range query.Order {
		text += []string{" order by ", ", ", ", "}[min(i, 2)] + part.Path.String()
		if part.Descending {
			text += " desc"
		}
	}
	if query.After != nil {
		text += fmt.Sprintf(" after %+v", *query.After)
	}
	return text + " limit " + strconv.Itoa(query.Limit)
}

// source formats a predicate for messages, as an expression.
func source(where domain.Predicate) string {
	parts := func(parts []domain.Predicate, operator, none string) string {
		if len(parts) == 0 {
			return none
		}
		texts := make([]string, len(parts))
		for i, part := range parts {
			texts[i] = source(part)
		}
		return "(" + strings.Join(texts, operator) + ")"
	}
	not := func(not bool) string {
		if not {
			return "!"
		}
		return ""
	}
	switch p := where.(type) {
	case nil:
		return "anything"
	case domain.And:
		return parts(p, " && ", "true")
	case domain.Or:
		return parts(p, " || ", "false")
	case domain.Has:
		return fmt.Sprintf("%shas(%s)", not(p.Not), p.Path)
	case domain.Compare:
		return fmt.Sprintf("%s %s %.120s", p.Path, p.Comparison, p.Value.JSON())
	case domain.OneOf:
		values := make([]string, len(p.Values))
		for i, value := range p.Values {
			values[i] = fmt.Sprintf("%.120s", value.JSON())
		}
		return fmt.Sprintf("%s(%s in [%s])", not(p.Not), p.Path, strings.Join(values, ", "))
	case domain.Contains:
		return fmt.Sprintf("%s(%.120s in %s)", not(p.Not), p.Value.JSON(), p.Path)
	case domain.Text:
		return fmt.Sprintf("%s%s.%s(%.120q)", not(p.Not), p.Path, p.Test, p.Text)
	case domain.Matches:
		return fmt.Sprintf("%s%s.matches(%q)", not(p.Not), p.Path, p.Pattern)
	}
	return fmt.Sprintf("%+v", where)
}
