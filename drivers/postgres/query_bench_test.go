package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// benchMillion is the number of documents in BenchmarkQuery's tables: seven tenths are the large tenant's.
const benchMillion = 1_000_000

// BenchmarkQuery measures queries of a million documents as percentiles of single calls. It uses a build's own table
// with declared indexes, and the common one. For comparison, it measures plain SQL by the primary key.
func BenchmarkQuery(b *testing.B) {
	db, d := benchDriver(b)
	super := db.Pool(b, pgtest.RoleSuperuser, 1)
	large := domain.NewTenantID()
	table := shared("bench", 1)
	table.Indexes = []string{"status", "customer", "total", "items"}
	own := domain.Build{ProjectionID: domain.ProjectionID{Owner: large, Name: "bench"}, Number: 1}
	if err := d.CreateTemporaryTable(b.Context(), table); err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{`manifold_documents."bench.1"`, "manifold_documents.documents"} {
		_, err := super.Exec(b.Context(), `insert into `+name+` select case when i % 10 < 7 then $1::uuid else ('00000000-0000-4000-8000-0000000000' || 10 + i % 20)::uuid end, 1,
			'order-' || lpad(i::text, 8, '0'), 1, jsonb_build_object('status', case when i % 100 = 0 then 'open' else 'closed' end,
				'customer', 'customer-' || i % 9973, 'total', i % 100000 + 0.5, 'items', jsonb_build_array('a-' || i % 4999, 'b-' || i, 'c'),
				'address', jsonb_build_object('street', 'Main Street ' || i, 'city', 'Springfield'), 'revision', 1)
			from generate_series(1, $2::int) i`, large.String(), benchMillion)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := super.Exec(b.Context(), "vacuum analyze "+name); err != nil {
			b.Fatal(err)
		}
	}
	start := time.Now()
	if err := d.IndexTable(b.Context(), table); err != nil {
		b.Fatal(err)
	}
	b.Logf("IndexTable: %s", time.Since(start))
	path := func(name string) domain.Path { return domain.Path{name} }
	equal := func(name string, value domain.Scalar) domain.Predicate {
		return domain.Compare{Path: path(name), Comparison: domain.Equal, Value: value}
	}
	by := func(name string, descending bool) []domain.Order {
		return []domain.Order{{Path: path(name), Descending: descending}}
	}
	measure := func(name string, ask func(i int) error) {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				start := time.Now()
				if err := ask(i); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
		})
	}
	conn, err := pgx.Connect(b.Context(), db.URL(pgtest.RoleSuperuser))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close(b.Context()) })
	id := func(i int) string { return fmt.Sprintf("order-%08d", i*7919%(benchMillion/10)*10+1) }
	measure("limit-by-id", func(i int) error {
		var document []byte
		return conn.QueryRow(b.Context(), `select document from manifold_documents."bench.1" where tenant_id = $1 and build = 1 and id = $2`, large.String(), id(i)).Scan(&document)
	})
	for kind, build := range map[string]domain.Build{"table": table, "common": own} {
		query := func(name string, limit int, make func(i int) domain.DocumentQuery) {
			measure(kind+"/"+name, func(i int) error {
				query := make(i)
				query.Limit = limit
				found, err := d.Query(b.Context(), build, large, query)
				if err == nil && len(found) == 0 {
					return fmt.Errorf("nothing is found by the query %d", i)
				}
				return err
			})
		}
		measure(kind+"/by-id", func(i int) error {
			_, ok, err := d.Get(b.Context(), build, large, id(i))
			if !ok {
				return fmt.Errorf("%s is missing: %w", id(i), err)
			}
			return err
		})
		query("equal-70", 50, func(i int) domain.DocumentQuery {
			return domain.DocumentQuery{Where: equal("customer", word(fmt.Sprint("customer-", i%9973)))}
		})
		query("equal-common", 50, func(i int) domain.DocumentQuery {
			return domain.DocumentQuery{Where: equal("status", word("closed"))}
		})
		query("equal-7000", 50, func(i int) domain.DocumentQuery {
			return domain.DocumentQuery{Where: equal("status", word("open"))}
		})
		query("equal-2", 50, func(i int) domain.DocumentQuery {
			return domain.DocumentQuery{Where: domain.And{equal("status", word("closed")), equal("customer", word(fmt.Sprint("customer-", i%9973)))}}
		})
		query("in-3", 50, func(i int) domain.DocumentQuery {
			return domain.DocumentQuery{Where: domain.OneOf{Path: path("customer"), Values: []domain.Scalar{word(fmt.Sprint("customer-", i%9973)), word("customer-1"), word("customer-2")}}}
		})
		query("member", 50, func(i int) domain.DocumentQuery {
			return domain.DocumentQuery{Where: domain.Contains{Path: path("items"), Value: word(fmt.Sprint("a-", i%4999))}}
		})
		measure(kind+"/count-70", func(i int) error {
			_, err := d.Count(b.Context(), build, large, equal("customer", word(fmt.Sprint("customer-", i%9973))))
			return err
		})
		measure(kind+"/count-7000", func(i int) error {
			_, err := d.Count(b.Context(), build, large, equal("status", word("open")))
			return err
		})
		measure(kind+"/count-all", func(i int) error {
			_, err := d.Count(b.Context(), build, large, nil)
			return err
		})
		query("order-desc", 50, func(i int) domain.DocumentQuery {
			return domain.DocumentQuery{Order: by("total", true), After: &domain.SortKey{Values: []domain.Scalar{number(int64(i*7919%90000 + 1000))}, ID: "x"}}
		})
		if kind == "common" {
			continue // each scans all of the tenant's documents
		}
		query("range", 50, func(i int) domain.DocumentQuery {
			return domain.DocumentQuery{Where: domain.And{
				domain.Compare{Path: path("total"), Comparison: domain.GreaterOrEqual, Value: number(int64(i * 7919 % 90000))},
				domain.Compare{Path: path("total"), Comparison: domain.Less, Value: number(int64(i*7919%90000 + 10))}}}
		})
		query("starts-with", 50, func(i int) domain.DocumentQuery {
			return domain.DocumentQuery{Where: domain.Text{Path: path("customer"), Test: domain.StartsWith, Text: fmt.Sprint("customer-", i%9973)}}
		})
		query("order-asc", 50, func(i int) domain.DocumentQuery {
			return domain.DocumentQuery{Order: by("total", false), After: &domain.SortKey{Values: []domain.Scalar{number(int64(i * 7919 % 90000))}, ID: "x"}}
		})
		query("order-desc-ties", 50, func(i int) domain.DocumentQuery {
			return domain.DocumentQuery{Order: by("status", true), After: &domain.SortKey{Values: []domain.Scalar{word("closed")}, ID: id(i)}}
		})
		query("order-and-filter", 50, func(i int) domain.DocumentQuery {
			return domain.DocumentQuery{Where: equal("status", word("open")), Order: by("total", true)}
		})
	}
}
