package migrations_test

import (
	"testing"

	"github.com/manifold-es/manifold/embedded/pgtest"
)

// Autovacuum freezes events and their seals soon after they were written. By PostgreSQL's defaults it would leave them
// for the vacuum that prevents wraparound.
func TestLogsAreFrozenEarly(t *testing.T) {
	pgtest.NotOnCluster(t, "its shards are other tables")
	t.Parallel()
	super := pgtest.Database(t).Pool(t, pgtest.RoleSuperuser, 2)
	for _, c := range []struct{ table, vacuumed, insert string }{
		{"events", "oid", `
			insert into manifold.events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, created_at)
			select '00000000-0000-0000-0000-000000000001', n, gen_random_uuid(), 'x-1', n, 'Added', '{}', now()
			from generate_series($1 * 100001::bigint + 1, ($1 + 1) * 100001::bigint) as n`},
		// Each seal has 13 rows in the TOAST table.
		{"seals", "reltoastrelid", `
			insert into manifold.seals (tenant_id, first_position, leaves, contents, salts)
			select '00000000-0000-0000-0000-000000000001', n * 256 + 1, b.hashes, b.hashes, substr(b.hashes, 1, 4096)
			from generate_series($1 * 1800::bigint, ($1 + 1) * 1800::bigint - 1) as n,
				(select decode(string_agg(md5(i::text), ''), 'hex') as hashes from generate_series(1, 512) as i) as b`},
	} {
		t.Run(c.table, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			for round := 0; ; round++ {
				if _, err := super.Exec(ctx, c.insert, round); err != nil {
					t.Fatal(err)
				}
				for vacuums := 0; vacuums <= round; {
					err := super.QueryRow(ctx, `select coalesce(pg_stat_get_autovacuum_count(`+c.vacuumed+`), 0), pg_sleep(0.05)::text
						from pg_class where oid = ('manifold.' || $1)::regclass`, c.table).Scan(&vacuums, nil)
					if err != nil {
						t.Fatal(err)
					}
				}
				// No unfrozen row is older than relfrozenxid. The first row was inserted first.
				var frozen bool
				err := super.QueryRow(ctx, `
					select age(v.relfrozenxid) < age(r.xmin) from pg_class t, pg_class v, manifold.`+c.table+` r
					where t.oid = ('manifold.' || $1)::regclass and v.oid = t.`+c.vacuumed+` and r.ctid = '(0,1)'`,
					c.table).Scan(&frozen)
				if err != nil {
					t.Fatal(err)
				}
				if frozen {
					return
				}
				if round == 4 { // another transaction may have kept some vacuums from freezing, but hardly all
					t.Fatal("after five vacuums the first rows are not frozen")
				}
			}
		})
	}
}
