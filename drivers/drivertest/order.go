package drivertest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// inOrder are values in ascending order, with equal ones in one row. Those of the last row cannot be ordered.
var inOrder = [][]string{
	{`null`, ``},
	{`-1.7976931348623157e308`},
	{`-9223372036854777856`},
	{`-9223372036854775808`},
	{`-9223372036854775807`},
	{`-1`},
	{`-0.5`},
	{`-5e-324`},
	{`0`},
	{`5e-324`},
	{`0.3`},
	{`0.30000000000000004`},
	{`1`},
	{`9`},
	{`10`},
	{`2251799813685248`},
	{`2251799813685248.5`},
	{`9007199254740992`},
	{`9007199254740993`},
	{`9007199254740994`},
	{`9223372036854775807`},
	{`9223372036854775808`},
	{`1e300`},
	{`1.7976931348623157e308`},
	{`""`},
	{`"\u0001"`},
	{`" "`},
	{`"$a"`},
	{`"10"`},
	{`"9"`},
	{`"A"`},
	{`"Z"`},
	{`"a"`},
	{`"a\t"`},
	{`"a "`},
	{`"a  "`},
	{`"aB"`},
	{`"ab"`},
	{`"co-op"`},
	{`"coop"`},
	{`"e"`},
	{`"e\u0301"`},
	{`"` + strings.Repeat("x", 249) + `"`},
	{`"` + strings.Repeat("x", 250) + `"`},
	{`"` + strings.Repeat("x", 249) + `y"`},
	{`"z"`},
	{`"ß"`},
	{`"é"`},
	{`"` + strings.Repeat("é", 250) + `"`},
	{`"\ue000"`},
	{`"\uffff"`},
	{`"\ud800\udc00"`},
	{`"` + strings.Repeat("\U0001f600", 250) + `"`},
	{`"\udbff\udfff"`},
	{`false`},
	{`true`},
	{`[]`, `[1]`, `{}`, `{"a": 1}`, `"` + strings.Repeat("a", 251) + `"`, `"` + strings.Repeat("\U0001f600", 251) + `"`, `"` + veryLong + `"`},
}

func (s *suite) orders(t *testing.T) {
	t.Parallel()
	s.eachIndexed(t, "all values ascending and descending", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		batch := drivers.Batch{To: 1}
		var before domain.SortKey
		for row, alike := range inOrder {
			for column, value := range alike {
				data := `{"n": ` + fmt.Sprint(row%3)
				if value != "" {
					data += `, "a": ` + value
				}
				// The ids run in the opposite direction, so that their order cannot be mistaken for the values'.
				document := document(fmt.Sprintf("%03d %d", 999-row, column), 1, data+`}`)
				batch.Upserts = append(batch.Upserts, document)
				// The table itself is correct.
				a := []domain.Order{{Path: at("a")}}
				place, err := domain.SortKeyOf(document, a)
				if err != nil || row+column > 0 && before.Compare(place, a) >= 0 {
					t.Fatalf("%.100s does not come after the previous one, %v", document.Data, err)
				}
				before = place
			}
		}
		rand.Shuffle(len(batch.Upserts), func(i, j int) {
			batch.Upserts[i], batch.Upserts[j] = batch.Upserts[j], batch.Upserts[i]
		})
		s.save(t, build, tenant, batch)
		s.index(t, build)
		a, n, nowhere := domain.Order{Path: at("a")}, domain.Order{Path: at("n")}, domain.Order{Path: at("a", "b", "c")}
		descending := func(part domain.Order) domain.Order {
			part.Descending = true
			return part
		}
		limits := []int{9, len(batch.Upserts), 1000}
		if s.Slow {
			limits = []int{17, len(batch.Upserts)}
		}
		for _, order := range [][]domain.Order{
			nil, {a}, {descending(a)}, {n, a}, {descending(n), a}, {n, descending(a)}, {descending(n), descending(a)}, {a, n}, {descending(a), n},
			{nowhere}, {descending(nowhere), a}, {nowhere, n, descending(a)}, {a, descending(a)},
		} {
			for _, limit := range limits {
				query := domain.DocumentQuery{Order: order, Limit: limit}
				found, err := s.pages(build, tenant, query)
				if err != nil {
					t.Fatalf("%s: %v", show(query), err)
				}
				if difference := differ(found, answer(t, batch.Upserts, query)); difference != "" {
					t.Errorf("%s: %s", show(query), difference)
				}
			}
		}
	})

	s.eachIndexed(t, "after a document that was removed", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		batch := drivers.Batch{To: 1}
		for i := range 20 {
			batch.Upserts = append(batch.Upserts, document(fmt.Sprintf("d%02d", i), 1, fmt.Sprintf(`{"a": %d}`, i/3)))
		}
		s.save(t, build, tenant, batch)
		s.index(t, build)
		query := domain.DocumentQuery{Order: []domain.Order{{Path: at("a"), Descending: true}}, Limit: 7}
		first, err := s.driver.Query(t.Context(), build, tenant, query)
		if err != nil || len(first) != 7 {
			t.Fatalf("Query gives %d documents, %v", len(first), err)
		}
		last := first[6]
		place, err := domain.SortKeyOf(last, query.Order)
		if err != nil {
			t.Fatal(err)
		}
		query.After, query.Limit = &place, 1000
		s.save(t, build, tenant, drivers.Batch{From: 1, To: 2, Deletes: []drivers.Deletion{{ID: last.ID, Version: 2}}})
		rest, err := s.driver.Query(t.Context(), build, tenant, query)
		if err != nil {
			t.Fatalf("Query: %v", err)
		}
		if difference := differ(rest, answer(t, batch.Upserts, query)); difference != "" {
			t.Errorf("%s: %s", show(query), difference)
		}
	})

	s.eachIndexed(t, "paging beside saves misses and doubles nothing", s.pagingBesideSaves)

	s.eachIndexed(t, "explaining changes nothing", func(t *testing.T, build domain.Build, tenant domain.TenantID) {
		documents := []domain.Document{document("a", 1, `{"a": 1, "n": "x"}`), document("b", 1, `{"a": [1], "n": "y"}`)}
		s.save(t, build, tenant, drivers.Batch{To: 1, Upserts: documents})
		s.index(t, build)
		for _, query := range []domain.DocumentQuery{
			{Limit: 1},
			{Limit: 10, Where: compared(at("a"), domain.Greater, num("0"))},
			{Limit: 10, Where: domain.Or{contains(at("a"), num("1")), tests(at("n"), domain.StartsWith, "x"), domain.And{}}, Order: []domain.Order{{Path: at("n")}, {Path: at("a"), Descending: true}}},
			{Limit: 10, Order: []domain.Order{{Path: at("n")}}, After: &domain.SortKey{Values: []domain.Scalar{text("x'")}, ID: "a"}},
		} {
			explanation, err := s.driver.Explain(t.Context(), build, tenant, query)
			if err != nil || explanation.Statement == "" {
				t.Errorf("Explain %s gives %+v, %v; want a statement", show(query), explanation, err)
			}
		}
		s.wantDocuments(t, build, tenant, documents...)
		s.wantCheckpoint(t, build, tenant, 1)
	})
}

// pagingBesideSaves pages while others save. Documents come and go, and some get other values. The others keep their
// place in the order, although they get new versions and other data elsewhere.
func (s *suite) pagingBesideSaves(t *testing.T, build domain.Build, tenant domain.TenantID) {
	const n = 150
	stays := func(i int64) string { return fmt.Sprintf("stays %03d", i) }
	data := func(i, round int64) string {
		value := fmt.Sprint(i % 7)
		switch i % 7 {
		case 0:
			value = `"text"`
		case 1:
			value = `null`
		case 2:
			value = `[1]`
		}
		return fmt.Sprintf(`{"a": %s, "n": "even", "round": %d}`, value, round)
	}
	batch := drivers.Batch{To: 1}
	for i := range int64(n) {
		batch.Upserts = append(batch.Upserts, document(stays(i), 1, data(i, 0)))
	}
	s.save(t, build, tenant, batch)
	s.index(t, build)
	stop := make(chan struct{})
	var saver sync.WaitGroup
	saver.Go(func() {
		for from := int64(1); ; from++ {
			select {
			case <-stop:
				return
			default:
			}
			next := drivers.Batch{From: from, To: from + 1}
			for i := range int64(10) {
				next.Upserts = append(next.Upserts,
					document(stays((from*10+i)%n), from+1, data((from*10+i)%n, from)),
					document(fmt.Sprintf("moves %d", i), from+1, fmt.Sprintf(`{"a": %d, "n": "even"}`, (from+i)%9)),
					document(fmt.Sprintf("%s and goes %d", stays((from*37+i*15)%n), from), from+1, `{"a": 3, "n": "even"}`))
				if from > 1 {
					next.Deletes = append(next.Deletes, drivers.Deletion{ID: fmt.Sprintf("%s and goes %d", stays(((from-1)*37+i*15)%n), from-1), Version: from + 1})
				}
			}
			if err := s.driver.Save(t.Context(), build, tenant, next); err != nil {
				t.Errorf("Save: %v", err)
				return
			}
		}
	})
	defer func() {
		close(stop)
		saver.Wait()
	}()
	where := compared(at("n"), domain.Equal, text("even"))
	for _, query := range []domain.DocumentQuery{
		{Limit: 17},
		{Limit: 23, Where: where, Order: []domain.Order{{Path: at("a")}}},
		{Limit: 17, Where: where, Order: []domain.Order{{Path: at("n")}, {Path: at("a"), Descending: true}}},
	} {
		found, err := s.pages(build, tenant, query)
		if err != nil {
			t.Fatalf("%s: %v", show(query), err)
		}
		seen := make(map[string]int)
		for _, document := range found {
			seen[document.ID]++
		}
		for i := range int64(n) {
			if seen[stays(i)] != 1 {
				t.Errorf("%s: %q is on %d pages", show(query), stays(i), seen[stays(i)])
			}
		}
	}
}
