package postgres_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
)

// rowsRead returns how many rows of a table were read in total, by its statistics. It waits until no
// driver has a session on the database, because a session reports its statistics when it ends.
func rowsRead(t *testing.T, db pgtest.DB, table string) int64 {
	t.Helper()
	return statistics(t, db, table, "pg_stat_get_tuples_returned(c.oid) + (select sum(pg_stat_get_tuples_returned(indexrelid)) from pg_index where indrelid = c.oid)")
}

// statistics returns an expression's value for a table c, or the sum for all its shards on a cluster.
func statistics(t *testing.T, db pgtest.DB, table, expression string) (sum int64) {
	t.Helper()
	var tables int64
	for _, node := range db.Nodes(t) {
		for others := 1; others > 0; {
			err := node.QueryRow(t.Context(), "select count(*) from pg_stat_activity where usename in ('manifold_documents', 'manifold_views', 'manifold_app') and datname = current_database()").Scan(&others)
			if err != nil {
				t.Fatal(err)
			}
		}
		// Before version 15, statistics go through a collector, and may be half a second old.
		_, err := node.Exec(t.Context(), "select pg_sleep(0.6) where current_setting('server_version_num')::int < 150000")
		if err != nil {
			t.Fatal(err)
		}
		var part, some int64
		err = node.QueryRow(t.Context(), `select coalesce(sum(`+expression+`), 0), count(*) from pg_class c
			where c.relnamespace = 'manifold_documents'::regnamespace and c.relkind = 'r' and c.relname ~ '_\d+$' = $2
				and regexp_replace(c.oid::regclass::text, '_\d+("?)$', '\1') = $1`, table, db.Distributed()).Scan(&part, &some)
		if err != nil {
			t.Fatal(err)
		}
		sum, tables = sum+part, tables+some
	}
	if tables == 0 {
		t.Fatalf("there is no table %s", table)
	}
	return sum
}

// Statements are prepared while every tenant has one document, as the table's statistics say. Then one tenant grows by
// five orders of magnitude. What a statement reads must not depend on the tenant's size.
func TestPlansOutgrowTheirBeginning(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 2)
	large := domain.NewTenantID()
	for name, table := range map[string]string{"shared": `manifold_documents."orders.1"`, "own": "manifold_documents.documents"} {
		build := shared("orders", 1)
		build.Indexes = []string{"version"}
		if name == "own" {
			build.Owner = large
		}
		t.Run(name, func(t *testing.T) {
			driver := open(t, db)
			if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
				t.Fatal(err)
			}
			settings := maps.Clone(pg.AppSettings)
			if db.Distributed() {
				maps.Copy(settings, pg.DistributedSettings)
			}
			app, err := pg.OpenPool(t.Context(), db.URL(migrations.RoleApp), 1, settings, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer app.Close()
			var at int64
			work := func() {
				t.Helper()
				var ids []string
				for range 200 {
					ids = append(ids, fmt.Sprintf("d%05d", rand.IntN(50_000)))
				}
				if _, err := driver.Load(t.Context(), build, large, ids); err != nil {
					t.Fatal(err)
				}
				if _, err := driver.Query(t.Context(), build, large, domain.DocumentQuery{After: &domain.SortKey{ID: "d00100"}, Limit: 50}); err != nil {
					t.Fatal(err)
				}
				if _, err := driver.Checkpoint(t.Context(), build, large); err != nil {
					t.Fatal(err)
				}
				for range driver.Checkpoints(t.Context(), build) {
				}
				save(t, driver, build, large, drivers.Batch{From: at, To: at + 1, Upserts: documents(at+1, fmt.Sprint("new ", at), "d00007", "d00008", "d00009"), New: 1,
					Deletes: []drivers.Deletion{{ID: "d00001", Version: at + 1}, {ID: "d00002", Version: at + 1}, {ID: "d00003", Version: at + 1}}})
				at++
				saveIn(t, driver, app, build, large, drivers.Batch{From: at, To: at + 1, Upserts: documents(at+1, fmt.Sprint("inline ", at), "d00004"),
					Deletes: []drivers.Deletion{{ID: "d00005", Version: at + 1}}})
				at++
			}
			_, err = super.Exec(t.Context(), `insert into `+table+` select gen_random_uuid(), 1, 'd', 1, '{"version": 1}' from generate_series(1, 200)`)
			if err != nil {
				t.Fatal(err)
			}
			if err := driver.IndexTable(t.Context(), build); err != nil {
				t.Fatal(err)
			}
			for _, statement := range []string{"alter table " + table + " set (autovacuum_enabled = off)", "analyze " + table} {
				if _, err := super.Exec(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			// Each connection prepares its own statements.
			for range 20 {
				work()
			}
			batch := drivers.Batch{From: at, To: at + 1}
			for i := range 50_000 {
				batch.Upserts = append(batch.Upserts, documents(at+1, fmt.Sprintf("d%05d", i))...)
			}
			// Without keys, for which each saved document is read once.
			unkeyed := build
			if !build.Shared() {
				unkeyed.Indexes = nil
			}
			save(t, driver, unkeyed, large, batch)
			at++
			for range 10 {
				work()
			}
			driver.Close()
			app.Close()
			// One scan of the tenant's documents reads all of them.
			if read := rowsRead(t, db, table); read >= 50_000 {
				t.Errorf("%d rows were read: some statement walks over all of the tenant's", read)
			}
		})
	}
}

// The checkpoints of tenants' own projections are read by the index that holds only them, without statistics: 20,000 of
// them take some 15 ms.
func TestOwnCheckpointsReadNoDocuments(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	driver := open(t, db)
	const table, checkpoints, documents = "manifold_documents.documents", 2_000, 10_000
	_, err := super.Exec(t.Context(), `alter table `+table+` set (autovacuum_enabled = off)`)
	if err == nil {
		_, err = super.Exec(t.Context(), `insert into `+table+` select gen_random_uuid(), 1, '', 1, null from generate_series(1, $1)`, checkpoints)
	}
	if err == nil {
		_, err = super.Exec(t.Context(), `insert into `+table+` select gen_random_uuid(), 1, 'd', 1, '{}' from generate_series(1, $1)`, documents)
	}
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, err := range driver.OwnCheckpoints(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		found++
	}
	driver.Close()
	read := rowsRead(t, db, table)
	const indexScans = `(select sum(pg_stat_get_numscans(indexrelid)) from pg_index where indrelid = c.oid and indexrelid::regclass::text %s 'documents/checkpoints')`
	// No other statistic shows what a scan skips.
	scans, others := statistics(t, db, table, fmt.Sprintf(indexScans, "~")), statistics(t, db, table, fmt.Sprintf(indexScans, "!~"))
	if found != checkpoints || read >= documents || scans == 0 || !db.Distributed() && scans != 1 || others != 0 {
		t.Errorf("%d checkpoints are found by reading %d rows, %d times by their index and %d times by others; want %d by theirs alone", found, read, scans, others, checkpoints)
	}
}

// A query for a narrow range of a path that a tenant's own projection declares reads the documents in it, and for a
// page by id also the next ones that it scans first, without statistics and with them. It reads the keys in the range
// once, and none if the scan fills the page.
func TestRangesOfOwnProjectionsReadLittle(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	driver := open(t, db)
	tenant := domain.NewTenantID()
	build, _ := ofOne(tenant, 1)
	// Of twice maxLookups, the planner of a cluster's node may read all keys, instead of stopping at the limit.
	const all, limit, scanned = 40_000, 30, 20 * 30
	batch := drivers.Batch{To: 1}
	for i := range all {
		batch.Upserts = append(batch.Upserts, domain.Document{ID: fmt.Sprintf("d%05d", i), Version: 1, Data: fmt.Appendf(nil, `{"a": %d, "b": {"c": "x%05d"}}`, i*7919%all, i)})
	}
	save(t, driver, build, tenant, batch)
	driver.Close()
	const table, keysTable = "manifold_documents.documents", "manifold_documents.document_keys"
	total, totalKeys := rowsRead(t, db, table), rowsRead(t, db, keysTable)
	numbers := domain.And{compared("a", domain.GreaterOrEqual, number(9_990)), compared("a", domain.Less, number(10_010))}
	texts := domain.Text{Path: domain.Path{"b", "c"}, Test: domain.StartsWith, Text: "x1234"}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			if _, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), "analyze manifold_documents.documents; analyze manifold_documents.document_keys"); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(what string, documents, atMost, keys int64, read func(driver drivers.Driver) (int64, error)) {
			t.Helper()
			driver := open(t, db)
			if found, err := read(driver); err != nil || found != documents {
				t.Errorf("%s, analyzed %t: %d documents, %v; want %d", what, analyzed, found, err, documents)
			}
			driver.Close()
			before := total
			if total = rowsRead(t, db, table); total-before > atMost {
				t.Errorf("%s, analyzed %t: %d documents are read, want at most %d", what, analyzed, total-before, atMost)
			}
			before = totalKeys
			// Beside the range, it may look up their checkpoint.
			if totalKeys = rowsRead(t, db, keysTable); totalKeys-before > keys+8 {
				t.Errorf("%s, analyzed %t: %d keys are read, want about %d", what, analyzed, totalKeys-before, keys)
			}
		}
		for what, filter := range map[string]domain.Predicate{"numbers": numbers, "texts": texts} {
			matching := map[string]int64{"numbers": 20, "texts": 10}[what]
			page := func(order ...domain.Order) func(driver drivers.Driver) (int64, error) {
				return func(driver drivers.Driver) (int64, error) {
					found, err := driver.Query(t.Context(), build, tenant, domain.DocumentQuery{Where: filter, Limit: limit, Order: order})
					return int64(len(found)), err
				}
			}
			expect(what, matching, scanned+100, matching, page())
			expect(what+" in another order", matching, 100, matching, page(byPath("d", true)))
			expect("the number of "+what, matching, 100, matching, func(driver drivers.Driver) (int64, error) { return driver.Count(t.Context(), build, tenant, filter) })
		}
		everything := compared("a", domain.GreaterOrEqual, number(0))
		expect("the number of all", all, all+100, 10_001, func(driver drivers.Driver) (int64, error) {
			return driver.Count(t.Context(), build, tenant, everything)
		})
		expect("a page of all", limit, scanned+100, 0, func(driver drivers.Driver) (int64, error) {
			found, err := driver.Query(t.Context(), build, tenant, domain.DocumentQuery{Where: everything, Limit: limit})
			return int64(len(found)), err
		})
	}
}

// Nearly every save updates its checkpoint twice: no index must grow because of that.
func TestCheckpointsAreHeapOnlyUpdates(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	driver := open(t, db)
	build := shared("orders", 1)
	if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	const table = `manifold_documents."orders.1"`
	tenant := domain.NewTenantID()
	save(t, driver, build, tenant, drivers.Batch{To: 1, Upserts: documents(1, "a", "b", "c")})
	const saves = 300
	for at := int64(1); at <= saves; at++ {
		save(t, driver, build, tenant, drivers.Batch{From: at, To: at + 1, Upserts: documents(at+1, "a")})
	}
	driver.Close()
	updates, hot := statistics(t, db, table, "pg_stat_get_tuples_updated(c.oid)"), statistics(t, db, table, "pg_stat_get_tuples_hot_updated(c.oid)")
	if updates < 3*saves || hot*10 < updates*9 {
		t.Errorf("%d of %d updates are heap-only", hot, updates)
	}
}

// 23 workers of several processes each follow every tenant while connections are cut. In the end, every tenant's
// documents are the result of its chain of saves.
func TestManyWorkersAndLostConnections(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	first := open(t, db)
	defer first.Close()
	build := shared("orders", 1)
	if err := first.CreateTemporaryTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	tenants := make([]domain.TenantID, 5)
	for i := range tenants {
		tenants[i] = domain.NewTenantID()
	}
	const end = 60
	// What is saved up to a position is a function of the position, as with a fold.
	batch := func(from, to int64) drivers.Batch {
		batch := drivers.Batch{From: from, To: to}
		last := make(map[string]int64)
		for position := from + 1; position <= to; position++ {
			last[fmt.Sprint("d", position%7)] = position
		}
		for id, version := range last {
			if version%5 == 0 {
				batch.Deletes = append(batch.Deletes, drivers.Deletion{ID: id, Version: version})
			} else {
				batch.Upserts = append(batch.Upserts, documents(version, id)...)
			}
		}
		return batch
	}
	processes := []drivers.Driver{first}
	for range 2 {
		driver := open(t, db)
		defer driver.Close()
		processes = append(processes, driver)
	}
	stop := make(chan struct{})
	var cutter sync.WaitGroup
	cutter.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_, err := super.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'manifold-documents' and datname = current_database() and random() < 0.02")
				if err != nil {
					t.Errorf("cut connections: %v", err)
					return
				}
			}
		}
	})
	var workers sync.WaitGroup
	for worker := range 23 {
		driver := processes[worker%len(processes)]
		workers.Go(func() {
			tenant := tenants[worker%len(tenants)]
			for {
				from, err := driver.Checkpoint(t.Context(), build, tenant)
				if err != nil {
					continue // cut too often; a worker retries
				}
				if from >= end {
					return
				}
				err = driver.Save(t.Context(), build, tenant, batch(from, min(end, from+1+rand.Int64N(4))))
				if _, cut := errors.AsType[*domain.Error](err); err != nil && !errors.Is(err, drivers.ErrStale) && !cut {
					t.Logf("Save: %v", err)
				}
			}
		})
	}
	workers.Wait()
	close(stop)
	cutter.Wait()
	want := make(map[string]int64)
	for position := int64(1); position <= end; position++ {
		id := fmt.Sprint("d", position%7)
		if want[id] = position; position%5 == 0 {
			delete(want, id)
		}
	}
	for _, tenant := range tenants {
		found, err := first.Query(t.Context(), build, tenant, domain.DocumentQuery{Limit: 100})
		for tries := 0; err != nil && tries < 10; tries++ {
			found, err = first.Query(t.Context(), build, tenant, domain.DocumentQuery{Limit: 100}) // the last cut may come this late
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range found {
			if want[document.ID] != document.Version {
				t.Errorf("%s is at version %d, want %d", document.ID, document.Version, want[document.ID])
			}
		}
		if len(found) != len(want) {
			t.Errorf("there are %d documents, want %d", len(found), len(want))
		}
	}
}
