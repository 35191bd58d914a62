package eventlog

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
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
	if _, err := admin.Exec(ctx, "alter table manifold.events set (autovacuum_enabled = off)"); err != nil { // it reads pages, too
		t.Fatal(err)
	}
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
	conn.Release()
	pool.Close()

	// Without categories, reads go through the log by windows, as does the count before a rebuild.
	const limit = 500 // the first reading of a replay
	tenant, err := domain.ParseTenantID(strings.Trim(id, "'"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := func(read func(s opened) (int64, error)) (fetched, found int64) {
		t.Helper()
		before := blocksFetched(t, admin)
		s, err := openLog(ctx, pg.Config{
			AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention),
		}, Observer{})
		if err != nil {
			t.Fatal(err)
		}
		found, err = read(s)
		s.Close()
		if err != nil {
			t.Fatal(err)
		}
		return blocksFetched(t, admin) - before, found
	}
	var table int64
	if err := admin.QueryRow(ctx, "select pg_relation_size('manifold.events') / current_setting('block_size')::int").Scan(&table); err != nil {
		t.Fatal(err)
	}
	for what, read := range map[string]func(s opened) (int64, error){
		"ReadLog": func(s opened) (int64, error) {
			events, err := s.ReadLog(ctx, tenant, domain.LogQuery{From: 1, To: int64(head), Types: []string{"Rare"}, Limit: limit, MaxBytes: 8 << 20})
			return int64(len(events)), err
		},
		"CountEvents": func(s opened) (int64, error) {
			return s.CountEvents(ctx, tenant, domain.Source{}, []string{"Rare"}, 0, int64(head))
		},
		"CountEvents of a category": func(s opened) (int64, error) {
			return s.CountEvents(ctx, tenant, domain.Source{Categories: []string{"order"}}, []string{"Rare"}, 0, int64(head))
		},
	} {
		fetched, found := blocks(read)
		if found != 6 || fetched > table/4 {
			t.Errorf("%s finds %d events of a rare type in %d blocks, want 6; the events of all types have %d", what, found, fetched, table)
		}
		t.Logf("%s: %d blocks; the events of all types have %d", what, fetched, table)
	}
}

// blocksFetched is how many blocks of the events and their indexes were read, by connections that have ended.
func blocksFetched(t *testing.T, admin *pgxpool.Pool) (blocks int64) {
	t.Helper()
	for others := 1; others > 0; {
		err := admin.QueryRow(t.Context(), "select count(*) from pg_stat_activity where usename like 'manifold%' and datname = current_database()").Scan(&others)
		if err != nil {
			t.Fatal(err)
		}
	}
	// The vacuum before is counted late otherwise: after a second, or when it has gone through the collector of version
	// 14.
	var version int
	if err := admin.QueryRow(t.Context(), "select current_setting('server_version_num')::int").Scan(&version); err != nil {
		t.Fatal(err)
	}
	flush := []string{"select pg_stat_force_next_flush()"}
	if version < 150000 {
		// After the first, the server has sent its counts. After the second, what was written without them is too old
		// to be read.
		flush = []string{"select pg_sleep(0.6)", "select pg_sleep(0.6)"}
	}
	for _, sql := range flush {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	err := admin.QueryRow(t.Context(), `select pg_stat_get_blocks_fetched(c.oid) + (select sum(pg_stat_get_blocks_fetched(indexrelid)) from pg_index where indrelid = c.oid)
		from pg_class c where c.oid = 'manifold.events'::regclass`).Scan(&blocks)
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}
