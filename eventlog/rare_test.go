package eventlog

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
)

// The cost of a projection of a rare type grows with its events, not with the log: its rebuild reads the index, not the
// events of other types, and following the last thousand events costs the same however many are before them.
func TestRareTypesAreReadFromTheIndex(t *testing.T) {
	pgtest.NotOnCluster(t, "it counts the pages that one server reads")
	t.Parallel()
	db := pgtest.Database(t)
	ctx := t.Context()
	const id = "'5b8c1b04-7b4f-4d8e-9d8a-6a2a1f0a9d11'"
	admin := db.Pool(t, pgtest.RoleSuperuser, 1)
	grow := func(from, to int) {
		t.Helper()
		_, err := admin.Exec(ctx, `insert into manifold.events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, created_at)
			select `+id+`, n, gen_random_uuid(), 'order-' || n % 100, n, case when n % 10000 = 5000 then 'Rare' else 'Common' end,
				jsonb_build_object('note', repeat('x', 300)), now() from generate_series($1::int, $2::int) as n`, from, to)
		if err != nil {
			t.Fatal(err)
		}
		// Any snapshot, such as autovacuum's of another table, keeps a vacuum from marking pages as visible to all.
		// Without these marks an index says nothing without the table, and PostgreSQL chooses another one.
		for marked := false; !marked; {
			if _, err := admin.Exec(ctx, "vacuum analyze manifold.events"); err != nil {
				t.Fatal(err)
			}
			err := admin.QueryRow(ctx, "select relallvisible = relpages from pg_class where oid = 'manifold.events'::regclass").Scan(&marked)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	pool, err := pg.OpenPool(ctx, db.URL(migrations.RoleApp), 1, pg.AppSettings, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	// pages is how many pages the statement touches, with a plan that must not know its parameters.
	var plan []byte // of the last statement
	pages := func(st *pg.Statement, args string) (touched, rows int) {
		t.Helper()
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(ctx) }() // nothing was changed
		for _, sql := range []string{"set local manifold.tenant = " + id, "set local plan_cache_mode = force_generic_plan"} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := tx.Prepare(ctx, st.Name, st.SQL); err != nil {
			t.Fatal(err)
		}
		if err := tx.QueryRow(ctx, fmt.Sprintf("explain (analyze, buffers, format json) execute %s(%s)", st.Name, args)).Scan(&plan); err != nil {
			t.Fatal(err)
		}
		var plans []struct {
			Plan struct {
				Hit  int     `json:"Shared Hit Blocks"`
				Read int     `json:"Shared Read Blocks"`
				Rows float64 `json:"Actual Rows"` // from version 18, with decimals
			}
		}
		if err := json.Unmarshal(plan, &plans); err != nil {
			t.Fatal(err)
		}
		if err := conn.Conn().DeallocateAll(ctx); err != nil {
			t.Fatal(err)
		}
		return plans[0].Plan.Hit + plans[0].Plan.Read, int(plans[0].Plan.Rows)
	}
	arguments := func(from int, types string) string {
		return fmt.Sprintf("%s, %d, %d, 20000, '{order}', '{%s}'", id, from, int64(math.MaxInt64), types)
	}
	follow := make(map[string]int)
	head := 0
	for _, size := range []int{10_000, 60_000} {
		grow(head+1, size)
		head = size
		var table int
		if err := admin.QueryRow(ctx, "select pg_relation_size('manifold.events') / current_setting('block_size')::int").Scan(&table); err != nil {
			t.Fatal(err)
		}
		touched, rows := pages(&categoriesTypesForward, arguments(1, "Rare"))
		if want := size / 10_000; rows != want {
			t.Errorf("of %d events %d are found, want %d", size, rows, want)
		}
		if touched > table/4 {
			t.Errorf("a rare type is read from %d pages; the events of all types have %d: %s", touched, table, plan)
		}
		for _, types := range []string{"Rare", "Common"} {
			touched, _ := pages(&categoriesTypesForward, arguments(head-999, types))
			if was, ok := follow[types]; ok && touched > was+was/2+10 {
				t.Errorf("the last 1000 events, of type %s, take %d pages with %d events in the log, and %d with 10000", types, touched, size, was)
			}
			follow[types] = touched
			touched, _ = pages(&logForward, fmt.Sprintf("%s, %d, %d, 1000", id, head-999, int64(math.MaxInt64)))
			if was, ok := follow[""]; ok && touched > was+was/2+10 {
				t.Errorf("the last 1000 events take %d pages with %d events in the log, and %d with 10000", touched, size, was)
			}
			follow[""] = touched
		}
	}
	t.Logf("pages for the last 1000 events: %v", follow)
}
