package postgres_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// ofOne returns a build of a tenant's own projection that declares indexes, and the same as an earlier release sees it,
// without keys.
func ofOne(tenant domain.TenantID, number int64) (keyed, plain domain.Build) {
	keyed = domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "own"}, Number: number, Indexes: []string{"a", "b.c"}}
	plain = keyed
	plain.Indexes = nil
	return keyed, plain
}

func byPath(path string, descending bool) domain.Order {
	return domain.Order{Path: strings.Split(path, "."), Descending: descending}
}

// keys returns how many documents of a build have keys, and its keys' checkpoint; 0: it has none.
func keys(t *testing.T, db pgtest.DB, build domain.Build) (documents, checkpoint int64) {
	t.Helper()
	err := db.Pool(t, pgtest.RoleSuperuser, 1).QueryRow(t.Context(), `select count(distinct id) filter (where id <> ''), coalesce(max(position), 0)
		from manifold_documents.document_keys where tenant_id = $1 and build = $2`, build.Owner, build.Number).Scan(&documents, &checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	return documents, checkpoint
}

// Pages in the order of a declared path are those of the documents, whichever release has saved them and in whatever
// batches, with an append or not: page by page, in both directions, with and without a filter.
func TestKeysAgreeWithTheDocuments(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	driver := open(t, db)
	t.Cleanup(driver.Close)
	app := db.Pool(t, migrations.RoleApp, 1)
	number := int64(0)
	values := []string{`1`, `2.5`, `"x"`, `"y"`, `null`, `true`, `[1]`, `"` + strings.Repeat("long", 100) + `"`}
	orders := [][]domain.Order{
		nil, {byPath("d", true)}, {byPath("a", false)}, {byPath("a", true)}, {byPath("b.c", false), byPath("a", true)}, {byPath("b.c", true), byPath("d", false)},
	}
	rapid.Check(t, func(r *rapid.T) {
		tenant := domain.NewTenantID()
		number++
		keyed, plain := ofOne(tenant, number)
		at := int64(0)
		for range rapid.IntRange(1, 6).Draw(r, "saves") {
			by := keyed
			if rapid.IntRange(0, 4).Draw(r, "release") == 0 {
				by = plain
			}
			batch := drivers.Batch{From: at, To: at + 1}
			if len(by.Indexes) > 0 && rapid.IntRange(0, 4).Draw(r, "kind") == 0 {
				batch.To = at // a repair, or a part of a fill
			}
			for _, id := range rapid.SliceOfNDistinct(rapid.IntRange(0, 9), 0, 5, rapid.ID).Draw(r, "ids") {
				version := max(batch.To, 1)
				if rapid.IntRange(0, 3).Draw(r, "change") == 0 {
					batch.Deletes = append(batch.Deletes, drivers.Deletion{ID: fmt.Sprint("d", id), Version: version})
					continue
				}
				draw := func(name string) string { return rapid.SampledFrom(values).Draw(r, name) }
				batch.Upserts = append(batch.Upserts, domain.Document{ID: fmt.Sprint("d", id), Version: version,
					Data: []byte(fmt.Sprintf(`{"a": %s, "b": {"c": %s}, "d": %s}`, draw("a"), draw("c"), draw("d")))})
			}
			if !batch.IsRepair() && batch.To > 0 && rapid.Bool().Draw(r, "inline") {
				saveIn(t, driver, app, by, tenant, batch)
			} else if err := driver.Save(t.Context(), by, tenant, batch); err != nil {
				t.Fatal(err)
			}
			at = batch.To
		}
		for range 3 {
			order := rapid.SampledFrom(orders).Draw(r, "order")
			query := domain.DocumentQuery{Order: order, Limit: 1000, Where: drawRanges(r)}
			count, err := driver.Count(t.Context(), keyed, tenant, query.Where)
			if want, plainErr := driver.Count(t.Context(), plain, tenant, query.Where); count != want || err != nil || plainErr != nil {
				t.Fatalf("with the filter %v there are %d documents, %v; want %d, %v", query.Where, count, err, want, plainErr)
			}
			want := ids(t, driver, plain, tenant, query)
			query.Limit = rapid.IntRange(1, 4).Draw(r, "limit")
			if got := ids(t, driver, keyed, tenant, query); !slices.Equal(got, want) {
				t.Fatalf("in the order %v with the filter %v there are %v, want %v", order, query.Where, got, want)
			}
		}
	})
}

// saveIn saves a batch in a transaction of the appending login, as an append does.
func saveIn(t *testing.T, driver *postgres.Driver, app *pgxpool.Pool, build domain.Build, tenant domain.TenantID, batch drivers.Batch) {
	t.Helper()
	statements, err := driver.SaveIn(build, tenant, batch)
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), app, func(tx pgx.Tx) error {
		// A sharded database passes this on to its nodes, unlike set_config.
		if _, err := tx.Exec(t.Context(), "set local manifold.tenant = '"+tenant.String()+"'"); err != nil {
			return err
		}
		for _, s := range statements {
			conn := tx.Conn()
			if _, err := conn.Prepare(t.Context(), s.Name, s.SQL); err != nil { // once for each connection and name
				return err
			}
			if result := conn.PgConn().ExecPrepared(t.Context(), s.Name, s.Params, []int16{1}, nil).Read(); result.Err != nil {
				return fmt.Errorf("%s: %w", s.Name, result.Err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// drawRanges draws a filter of up to three ranges, of declared paths or of others, or nil.
func drawRanges(r *rapid.T) domain.Predicate {
	texts := []string{"", "x", "y", strings.Repeat("long", 100)}
	draw := rapid.Custom(func(r *rapid.T) domain.Predicate {
		path := rapid.SampledFrom([]domain.Path{{"a"}, {"b", "c"}, {"d"}}).Draw(r, "path")
		text := rapid.SampledFrom(texts).Draw(r, "text")
		if rapid.IntRange(0, 3).Draw(r, "test") == 0 {
			return domain.Text{Path: path, Test: domain.StartsWith, Text: text, Not: rapid.IntRange(0, 3).Draw(r, "not") == 0}
		}
		value := rapid.SampledFrom([]domain.Scalar{{Kind: domain.ScalarInt, Int: 1}, {Kind: domain.ScalarDouble, Double: 2.5}, {Kind: domain.ScalarText, Text: text},
			{Kind: domain.ScalarBool, Bool: true}, {}}).Draw(r, "value")
		comparison := rapid.SampledFrom([]domain.Comparison{domain.Less, domain.LessOrEqual, domain.Greater, domain.GreaterOrEqual, domain.Equal}).Draw(r, "comparison")
		return domain.Compare{Path: path, Comparison: comparison, Value: value}
	})
	switch parts := rapid.SliceOfN(draw, 0, 3).Draw(r, "filter"); len(parts) {
	case 0:
		return nil
	case 1:
		return parts[0]
	default:
		return domain.And(parts)
	}
}

// ids returns the ids of all pages.
func ids(t *testing.T, driver *postgres.Driver, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (all []string) {
	t.Helper()
	for {
		page, err := driver.Query(t.Context(), build, tenant, query)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range page {
			all = append(all, document.ID)
		}
		if len(page) < query.Limit {
			return all
		}
		after, err := domain.SortKeyOf(page[len(page)-1], query.Order)
		if err != nil {
			t.Fatal(err)
		}
		query.After = &after
	}
}

// Keys are complete from a build's first checkpoint on, also after a fill, until something else saves. They go with the
// documents.
func TestKeysFollowTheCheckpoint(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	driver := open(t, db)
	t.Cleanup(driver.Close)
	tenant := domain.NewTenantID()
	expect := func(what string, build domain.Build, documents, checkpoint int64) {
		t.Helper()
		if d, c := keys(t, db, build); d != documents || c != checkpoint {
			t.Errorf("%s: %d documents have keys, at %d; want %d, at %d", what, d, c, documents, checkpoint)
		}
	}
	keyed, plain := ofOne(tenant, 1)
	save(t, driver, keyed, tenant, drivers.Batch{Upserts: documents(1, "x", "y")})
	expect("during a fill", keyed, 2, 0)
	save(t, driver, keyed, tenant, drivers.Batch{To: 5})
	expect("after it", keyed, 2, 5)
	save(t, driver, keyed, tenant, drivers.Batch{From: 5, To: 6, Upserts: documents(6, "z"), Deletes: []drivers.Deletion{{ID: "x", Version: 6}}})
	expect("after a save", keyed, 2, 6)
	save(t, driver, keyed, tenant, drivers.Batch{From: 6, To: 6, Deletes: []drivers.Deletion{{ID: "z", Version: 5}}})
	expect("after a deletion that comes too late", keyed, 2, 6)
	if err := driver.Save(t.Context(), keyed, tenant, drivers.Batch{From: 5, To: 7, Upserts: documents(7, "stale")}); err == nil {
		t.Error("a stale batch is saved")
	}
	expect("after a stale batch", keyed, 2, 6)
	save(t, driver, plain, tenant, drivers.Batch{From: 6, To: 7, Upserts: documents(7, "w")})
	save(t, driver, keyed, tenant, drivers.Batch{From: 7, To: 8, Upserts: documents(8, "v")})
	expect("after a save by an earlier release", keyed, 3, 6)

	app := db.Pool(t, migrations.RoleApp, 1)
	inline, inlinePlain := ofOne(tenant, 3)
	saveIn(t, driver, app, inline, tenant, drivers.Batch{To: 5, Upserts: documents(5, "x", "y")})
	expect("after a save with the first append", inline, 2, 5)
	saveIn(t, driver, app, inline, tenant, drivers.Batch{From: 5, To: 6, Upserts: documents(6, "z"), Deletes: []drivers.Deletion{{ID: "x", Version: 6}}})
	expect("after one with another", inline, 2, 6)
	saveIn(t, driver, app, inline, tenant, drivers.Batch{From: 6, To: 7})
	expect("after one without documents", inline, 2, 7)
	save(t, driver, inline, tenant, drivers.Batch{From: 7, To: 8, Upserts: documents(8, "v")})
	expect("after a save without an append", inline, 3, 8)
	saveIn(t, driver, app, inlinePlain, tenant, drivers.Batch{From: 8, To: 9, Upserts: documents(9, "w")})
	saveIn(t, driver, app, inline, tenant, drivers.Batch{From: 9, To: 10, Upserts: documents(10, "u")})
	expect("after one with an append to an earlier release", inline, 4, 8)

	other, otherPlain := ofOne(tenant, 2)
	save(t, driver, otherPlain, tenant, drivers.Batch{Upserts: documents(1, "x")})
	save(t, driver, other, tenant, drivers.Batch{To: 5, Upserts: documents(5, "y")})
	expect("after a fill that an earlier release began", other, 1, 0)
	if err := driver.DropTable(t.Context(), keyed); err != nil {
		t.Fatal(err)
	}
	expect("after the build was dropped", keyed, 0, 0)
	expect("in another build", other, 1, 0)
	if err := driver.DropTenant(t.Context(), other, tenant); err != nil {
		t.Fatal(err)
	}
	expect("after the tenant was dropped", other, 0, 0)
}

// A page in the order of a declared path reads about as many documents as it has, from the first page to the last, in
// both directions, without statistics and with them.
func TestPagesByKeysReadLittle(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	driver := open(t, db)
	tenant := domain.NewTenantID()
	keyed, _ := ofOne(tenant, 1)
	const all = 20_000
	batch := drivers.Batch{To: 1}
	for i := range all {
		batch.Upserts = append(batch.Upserts, domain.Document{ID: fmt.Sprintf("d%05d", i), Version: 1, Data: []byte(fmt.Sprintf(`{"a": %d, "b": {"c": "x"}}`, i*7919%all))})
	}
	save(t, driver, keyed, tenant, batch)
	driver.Close()
	const table = "manifold_documents.documents"
	total := rowsRead(t, db, table)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			if _, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), "analyze manifold_documents.documents; analyze manifold_documents.document_keys"); err != nil {
				t.Fatal(err)
			}
		}
		for _, descending := range []bool{false, true} {
			for _, after := range []*domain.SortKey{nil, {Values: []domain.Scalar{{Kind: domain.ScalarInt, Int: all / 2}}, ID: "d"}} {
				driver := open(t, db)
				page, err := driver.Query(t.Context(), keyed, tenant, domain.DocumentQuery{Order: []domain.Order{byPath("a", descending)}, Limit: 50, After: after})
				if err != nil || len(page) != 50 {
					t.Fatalf("%d documents, %v", len(page), err)
				}
				driver.Close()
				before := total
				if total = rowsRead(t, db, table); total-before > 500 {
					t.Errorf("descending %t, analyzed %t, after %v: %d documents are read", descending, analyzed, after, total-before)
				}
			}
		}
	}
}
