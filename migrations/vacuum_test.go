package migrations_test

import (
	"testing"

	"github.com/manifold-es/manifold/embedded/pgtest"
)

// Autovacuum freezes events soon after they were appended. By PostgreSQL's defaults it would leave them for the vacuum
// that prevents wraparound.
func TestEventsAreFrozenEarly(t *testing.T) {
	pgtest.NotOnCluster(t, "its shards are other tables")
	t.Parallel()
	ctx := t.Context()
	super := pgtest.Database(t).Pool(t, pgtest.RoleSuperuser, 1)
	for round := 0; ; round++ {
		_, err := super.Exec(ctx, `
			insert into manifold.events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, created_at)
			select '00000000-0000-0000-0000-000000000001', n, gen_random_uuid(), 'x-1', n, 'Added', '{}', now()
			from generate_series($1::bigint + 1, $1::bigint + 100001) as n`, round*100001)
		if err != nil {
			t.Fatal(err)
		}
		for vacuums := 0; vacuums <= round; {
			err := super.QueryRow(ctx, "select autovacuum_count, pg_sleep(0.05)::text from pg_stat_user_tables where relid = 'manifold.events'::regclass").Scan(&vacuums, nil)
			if err != nil {
				t.Fatal(err)
			}
		}
		// No unfrozen row is older than relfrozenxid.
		var frozen bool
		err = super.QueryRow(ctx, `select age(c.relfrozenxid) < age(e.xmin) from pg_class c, manifold.events e
			where c.oid = 'manifold.events'::regclass order by e.position limit 1`).Scan(&frozen)
		if err != nil {
			t.Fatal(err)
		}
		if frozen {
			return
		}
		if round == 4 { // another transaction may have kept some vacuums from freezing, but hardly all
			t.Fatal("after five vacuums the first events are not frozen")
		}
	}
}
