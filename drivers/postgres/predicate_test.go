package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

func word(text string) domain.Scalar { return domain.Scalar{Kind: domain.ScalarText, Text: text} }

func number(n int64) domain.Scalar { return domain.Scalar{Kind: domain.ScalarInt, Int: n} }

func compared(name string, comparison domain.Comparison, value domain.Scalar) domain.Predicate {
	return domain.Compare{Path: domain.Path{name}, Comparison: comparison, Value: value}
}

// What a query reads is limited by its result, whatever else the tenant has, and is never another tenant's. The
// documents' own login runs it, under row-level security.
func TestQueriesReadLittle(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 2)
	large, small := domain.NewTenantID(), domain.NewTenantID()
	build := shared("orders", 1)
	build.Indexes = []string{"status", "total", "name", "tags"}
	driver := open(t, db)
	if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	const separate, common = `manifold_documents."orders.1"`, "manifold_documents.documents"
	for _, table := range []string{separate, common} {
		// The values are the same for all tenants. Nearly all documents are closed; any other value is rare.
		for tenant, documents := range map[domain.TenantID]int{large: 8000, small: 100, domain.NewTenantID(): 4000, domain.NewTenantID(): 4000} {
			_, err := super.Exec(t.Context(), `insert into `+table+` select $1::uuid, 1, 'd' || lpad((i * 7919 % $2)::text, 6, '0'), 1, jsonb_build_object(
					'status', case when i % 100 = 0 then 'open' else 'closed' end, 'total', i, 'name', 'name ' || i,
					'tags', case when i % 10 = 0 then '"none"' else jsonb_build_array('all', 'tag ' || i % 1000) end)
				from generate_series(0, $2::int - 1) i`, tenant.String(), documents)
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := super.Exec(t.Context(), "alter table "+table+" set (autovacuum_enabled = off)"); err != nil {
			t.Fatal(err)
		}
		// The general index's entries leave the pending list.
		if _, err := super.Exec(t.Context(), "vacuum analyze "+table); err != nil {
			t.Fatal(err)
		}
	}
	if err := driver.IndexTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	driver.Close()
	const limit, times = 20, 5
	by := func(name string, descending bool) []domain.Order {
		return []domain.Order{{Path: domain.Path{name}, Descending: descending}}
	}
	total := map[string]int64{separate: rowsRead(t, db, separate), common: rowsRead(t, db, common)}
	place := func(value domain.Scalar, id string) *domain.SortKey {
		return &domain.SortKey{Values: []domain.Scalar{value}, ID: id}
	}
	for _, question := range []struct {
		name  string
		query domain.DocumentQuery
		own   bool  // also for the common table
		most  int64 // rows that it may read there per returned document
	}{
		{"equal, rare", domain.DocumentQuery{Where: compared("total", domain.Equal, number(42))}, true, 30},
		{"equal, common", domain.DocumentQuery{Where: compared("status", domain.Equal, word("closed"))}, true, 30},
		{"equal, next page", domain.DocumentQuery{Where: compared("status", domain.Equal, word("closed")), After: &domain.SortKey{ID: "d004000"}}, true, 30},
		{"equal, two", domain.DocumentQuery{Where: domain.And{compared("status", domain.Equal, word("closed")), compared("name", domain.Equal, word("name 43"))}}, true, 30},
		{"equal, nowhere", domain.DocumentQuery{Where: compared("status", domain.Equal, word("lost"))}, true, 30},
		{"range", domain.DocumentQuery{Where: domain.And{compared("total", domain.GreaterOrEqual, number(30)), compared("total", domain.Less, number(40))}}, false, 0},
		{"range of texts", domain.DocumentQuery{Where: domain.And{compared("name", domain.Greater, word("name 55")), compared("name", domain.Less, word("name 551"))}}, false, 0},
		{"starts with", domain.DocumentQuery{Where: domain.Text{Path: domain.Path{"name"}, Test: domain.StartsWith, Text: "name 99"}}, false, 0},
		{"one of", domain.DocumentQuery{Where: domain.OneOf{Path: domain.Path{"total"}, Values: []domain.Scalar{number(1), number(50), number(7000)}}}, true, 30},
		{"in a list", domain.DocumentQuery{Where: domain.Contains{Path: domain.Path{"tags"}, Value: word("tag 33")}}, false, 0},
		{"ascending", domain.DocumentQuery{Order: by("total", false)}, false, 0},
		{"ascending, next page", domain.DocumentQuery{Order: by("total", false), After: place(number(60), "d000050")}, false, 0},
		{"descending", domain.DocumentQuery{Order: by("total", true)}, false, 0},
		{"descending, next page", domain.DocumentQuery{Order: by("total", true), After: place(number(60), "d000050")}, false, 0},
		{"descending, alike", domain.DocumentQuery{Order: by("status", true)}, false, 0},
		{"descending, alike, next page", domain.DocumentQuery{Order: by("status", true), After: place(word("closed"), "d000050")}, false, 0},
		{"unordered", domain.DocumentQuery{Order: by("tags", true), After: &domain.SortKey{Unordered: true, ID: "d000050"}}, false, 0},
		{"descending and filtered", domain.DocumentQuery{Where: compared("status", domain.Equal, word("closed")), Order: by("total", true), After: place(number(60), "")}, false, 0},
	} {
		for _, own := range []bool{false, true} {
			if own && !question.own {
				continue
			}
			table, most := separate, int64(6) // a page has up to three slices
			if own {
				table, most = common, question.most
			}
			driver := open(t, db)
			question.query.Limit = limit
			var explained strings.Builder
			for _, tenant := range []domain.TenantID{large, small} {
				build := build
				if own {
					build = domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "orders"}, Number: 1}
				}
				for range times {
					documents, err := driver.Query(t.Context(), build, tenant, question.query)
					if err != nil {
						t.Fatalf("%s: %v", question.name, err)
					}
					if len(documents) == 0 && question.name != "equal, nowhere" && tenant == large {
						t.Errorf("%s: nothing is found", question.name)
					}
				}
				explanation, err := driver.Explain(t.Context(), build, tenant, question.query)
				if err != nil {
					t.Fatalf("%s: %v", question.name, err)
				}
				fmt.Fprintf(&explained, "\nof all %t:\n%s\n%s", tenant == large, explanation.Statement, explanation.Plan)
			}
			driver.Close()
			// For both tenants together: both limits are far below a scan of one tenant's documents.
			before := total[table]
			total[table] = rowsRead(t, db, table)
			if read := total[table] - before; read > 2*times*limit*most {
				t.Errorf("%s, own %t: %d rows are read for at most %d documents%s", question.name, own, read, 2*times*limit, explained.String())
			}
		}
	}
}

// With a partition, too, what a query reads is limited by its result, however large the partition is and whatever other
// tenants have. A small partition is beside a large one, and each condition alone matches very many documents.
func TestQueriesOfAPartitionReadLittle(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 2)
	tenant := domain.NewTenantID()
	build := shared("orders", 1)
	build.PartitionBy, build.Indexes = "customer.id", []string{"status", "total", "name", "tags"}
	driver := open(t, db)
	if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	const table = `manifold_documents."orders.1"`
	for owner, documents := range map[domain.TenantID]int{tenant: 8000, domain.NewTenantID(): 2000} {
		// Half of a tenant's documents belong to the large customer; the other customers have some 13 each. All have
		// all values.
		_, err := super.Exec(t.Context(), `insert into `+table+` select $1::uuid, 1, 'd' || lpad((i * 7919 % $2)::text, 6, '0'), 1, jsonb_build_object(
				'customer', jsonb_build_object('id', case when i % 2 = 0 then 'large' else 'c' || i % 299 end),
				'status', case when i % 100 < 2 then 'open' else 'closed' end, 'total', i / 40, 'name', 'name ' || i,
				'tags', jsonb_build_array('all', 'tag ' || i / 2 % 100))
			from generate_series(0, $2::int - 1) i`, owner.String(), documents)
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := super.Exec(t.Context(), "alter table "+table+" set (autovacuum_enabled = off)"); err != nil {
		t.Fatal(err)
	}
	if err := driver.IndexTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	if _, err := super.Exec(t.Context(), "vacuum analyze "+table); err != nil {
		t.Fatal(err)
	}
	driver.Close()
	const limit, times = 20, 5
	total := rowsRead(t, db, table)
	by := func(name string, descending bool) []domain.Order {
		return []domain.Order{{Path: domain.Path{name}, Descending: descending}}
	}
	for _, question := range []struct {
		name  string
		where domain.Predicate
		order []domain.Order
		after *domain.SortKey
	}{
		{"alone", nil, nil, nil},
		{"alone, next page", nil, nil, &domain.SortKey{ID: "d001000"}},
		{"equal, common", compared("status", domain.Equal, word("closed")), nil, nil},
		{"equal, rare", compared("status", domain.Equal, word("open")), nil, nil},
		{"equal, nowhere", compared("status", domain.Equal, word("lost")), nil, nil},
		{"range", domain.And{compared("total", domain.GreaterOrEqual, number(30)), compared("total", domain.Less, number(33))}, nil, nil},
		{"starts with", domain.Text{Path: domain.Path{"name"}, Test: domain.StartsWith, Text: "name 99"}, nil, nil},
		{"in a list", domain.Contains{Path: domain.Path{"tags"}, Value: word("tag 33")}, nil, nil},
		{"ascending", nil, by("total", false), nil},
		{"ascending, next page", nil, by("total", false), &domain.SortKey{Values: []domain.Scalar{number(60)}, ID: "d000050"}},
		{"descending", nil, by("total", true), nil},
		{"descending, next page", nil, by("total", true), &domain.SortKey{Values: []domain.Scalar{number(60)}, ID: "d000050"}},
	} {
		driver := open(t, db)
		var explained strings.Builder
		for _, customer := range []string{"large", "c7"} {
			query := domain.DocumentQuery{Order: question.order, After: question.after, Limit: limit,
				Where: domain.And{domain.Compare{Path: domain.Path{"customer", "id"}, Comparison: domain.Equal, Value: word(customer)}}}
			if question.where != nil {
				query.Where = append(query.Where.(domain.And), question.where)
			}
			for range times {
				documents, err := driver.Query(t.Context(), build, tenant, query)
				if err != nil {
					t.Fatalf("%s: %v", question.name, err)
				}
				if len(documents) == 0 && question.name != "equal, nowhere" && customer == "large" {
					t.Errorf("%s: nothing is found", question.name)
				}
			}
			explanation, err := driver.Explain(t.Context(), build, tenant, query)
			if err != nil {
				t.Fatalf("%s: %v", question.name, err)
			}
			fmt.Fprintf(&explained, "\nof %s:\n%s\n%s", customer, explanation.Statement, explanation.Plan)
		}
		driver.Close()
		before := total
		total = rowsRead(t, db, table)
		if read := total - before; read > 2*times*limit*6 {
			t.Errorf("%s: %d rows are read for at most %d documents%s", question.name, read, 2*times*limit, explained.String())
		}
	}
}

// A query that takes too long is ended, whatever it does, and its connection is fit for the next.
func TestCostlyQueriesEnd(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	patient := open(t, db)
	defer patient.Close()
	driver, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments), QueryConns: 1, QueryTimeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer driver.Close()
	tenant := domain.NewTenantID()
	build := shared("orders", 1)
	if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	document := domain.Document{ID: "a", Version: 1, Data: []byte(`{"text": "` + strings.Repeat("ab", 1_000_000) + `"}`)}
	save(t, driver, build, tenant, drivers.Batch{To: 1, Upserts: []domain.Document{document}})
	matches := func(text string) domain.DocumentQuery {
		pattern, err := domain.ParsePattern(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return domain.DocumentQuery{Limit: 1, Where: domain.Matches{Path: domain.Path{"text"}, Pattern: pattern}}
	}
	wantCode := func(name string, err error, want ...domain.Code) {
		t.Helper()
		sorted, ok := errors.AsType[*domain.Error](err)
		for _, code := range want {
			if ok && sorted.Code == code {
				return
			}
		}
		t.Errorf("%s: the error is %v, want one with the code %s", name, err, want)
	}
	for name, text := range map[string]string{
		"nested counts": "(((a{1,9}b?){1,9}){1,9})x",
		"alternatives":  "(a|ab|b|ba|abab|(a|b)*aab){200}c",
		"wide":          `^(?:[\pL\pN]*[ab]){60}x`,
	} {
		query := matches(text)
		start := time.Now()
		_, err := driver.Query(t.Context(), build, tenant, query)
		if err != nil {
			wantCode(name, err, domain.CodeTooCostly, domain.CodeUnsupported)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s took %s", name, took)
		}
	}
	// This query would certainly never end: it waits for the session that has locked the table.
	costly := domain.DocumentQuery{Limit: 1, Where: compared("text", domain.Equal, word("a"))}
	err = pgx.BeginFunc(t.Context(), db.Pool(t, pgtest.RoleSuperuser, 1), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `lock manifold_documents."orders.1"`); err != nil {
			return err
		}
		_, err := driver.Query(t.Context(), build, tenant, costly)
		wantCode("Query", err, domain.CodeTooCostly)
		_, err = driver.Count(t.Context(), build, tenant, costly.Where)
		wantCode("Count", err, domain.CodeTooCostly)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := patient.Query(ctx, build, tenant, costly); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a query whose time is over: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if count, err := driver.Count(t.Context(), build, tenant, compared("text", domain.Greater, word("aba"))); err != nil || count != 1 {
		t.Errorf("the next query gives %d, %v", count, err)
	}
}

// What queries read shows the same as the policy, and only to the login that it is made for. That is a view, or in a
// distributed database its text, which the role manifold_views reads. The role may see every tenant's documents.
func TestQueriesSourceIsOneTenants(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	driver := open(t, db)
	defer driver.Close()
	one, two := domain.NewTenantID(), domain.NewTenantID()
	build := shared("orders", 1)
	if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []domain.TenantID{one, two} {
		own := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "mine"}, Number: 1}
		for _, build := range []domain.Build{build, own} {
			save(t, driver, build, tenant, drivers.Batch{To: 1, Upserts: documents(1, "a", "b")})
		}
	}
	type source struct{ role, from string }
	var sources []source
	for _, table := range []string{`manifold_documents."orders.1"`, "manifold_documents.documents"} {
		sources = append(sources, source{"set local role manifold_views", "(" + postgres.TenantViewQuery(table) + ") documents"})
	}
	if !db.Distributed() {
		for _, view := range []string{`manifold_documents."orders.1.tenant"`, `manifold_documents."documents.tenant"`} {
			sources = append(sources, source{"set local role none", view})
		}
	}
	login := db.Pool(t, migrations.RoleDocuments, 1)
	for _, s := range sources {
		for setting, want := range map[string]int{
			"": 0, "set local manifold.tenant = ''": 0,
			"set local manifold.tenant = '" + one.String() + "'":                  2,
			"set local manifold.tenant = '" + domain.NewTenantID().String() + "'": 0,
		} {
			err := pgx.BeginFunc(t.Context(), login, func(tx pgx.Tx) error {
				for _, statement := range []string{setting, s.role} {
					if _, err := tx.Exec(t.Context(), statement); err != nil {
						return err
					}
				}
				var all, others, checkpoints, named int
				err := tx.QueryRow(t.Context(), "select count(*), count(*) filter (where tenant_id <> $1), count(*) filter (where id = '') from "+s.from, one.String()).Scan(&all, &others, &checkpoints)
				if err != nil {
					return err
				}
				// A statement that names another tenant goes to that tenant's shard.
				err = tx.QueryRow(t.Context(), "select count(*) from "+s.from+" where tenant_id = $1", two.String()).Scan(&named)
				if all != want || others+named != 0 || checkpoints != 0 {
					t.Errorf("%s, %q: %d rows, %d and %d of others, %d checkpoints; want %d rows", s.from, setting, all, others, named, checkpoints, want)
				}
				return err
			})
			if err != nil {
				t.Errorf("%s, %q: %v", s.from, setting, err)
			}
		}
		for _, role := range []migrations.Role{migrations.RoleApp, migrations.RoleSystem, migrations.RoleRetention} {
			err := pgx.BeginFunc(t.Context(), db.Pool(t, role, 1), func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), s.role); err != nil {
					return err
				}
				_, err := tx.Exec(t.Context(), "select 1 from "+s.from)
				return err
			})
			if native, ok := errors.AsType[*pgconn.PgError](err); !ok || native.Code != "42501" {
				t.Errorf("%s reads %s: %v", role, s.from, err)
			}
		}
	}
	// The driver reads from such a source. Whatever a client asks for, the documents are its tenant's.
	everything := compared("version", domain.GreaterOrEqual, number(0))
	for _, tenant := range []domain.TenantID{one, two, domain.NewTenantID()} {
		want := int64(2)
		if tenant != one && tenant != two {
			want = 0
		}
		query := domain.DocumentQuery{Where: everything, Limit: 10}
		found, err := driver.Query(t.Context(), build, tenant, query)
		if err != nil || int64(len(found)) != want {
			t.Errorf("the query gives %d documents, %v; want %d", len(found), err, want)
		}
		if count, err := driver.Count(t.Context(), build, tenant, everything); err != nil || count != want {
			t.Errorf("the count is %d, %v; want %d", count, err, want)
		}
		explained, err := driver.Explain(t.Context(), build, tenant, query)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(sources, func(s source) bool {
			return (s.role == "set local role none") != db.Distributed() && strings.Contains(explained.Statement, s.from)
		}) {
			t.Errorf("the driver reads something else: %s", explained.Statement)
		}
	}
}
