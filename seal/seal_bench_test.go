package seal_test

import (
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// BenchmarkSeal seals a backlog of 200,000 events of about 250 bytes, without the Sealer's pauses.
func BenchmarkSeal(b *testing.B) {
	const events = 200_000
	db := pgtest.Database(b)
	s := tablestest.OpenAgain(b, db)
	super := db.Pool(b, pgtest.RoleSuperuser, 1)
	sealing := time.Duration(0)
	var stored int64
	for b.Loop() {
		log := domain.NewTenantID()
		for _, statement := range []string{
			`insert into manifold.logs (tenant_id, head) values ($1, $2)`,
			`insert into manifold.events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, metadata, created_at)
			 select $1, n, gen_random_uuid(), 'order-' || n, 1, 'OrderPlaced', jsonb_build_object('customer', md5(n::text), 'note', repeat('x', 120), 'n', n), '{"user": "u-1"}', now() from generate_series(1, $2) n`,
		} {
			if _, err := super.Exec(b.Context(), statement, log, events); err != nil {
				b.Fatal(err)
			}
		}
		began := time.Now()
		sealAll(b, s, log)
		sealing += time.Since(began)
		tablestest.Must(b, super.QueryRow(b.Context(), `
			select pg_total_relation_size('manifold.seals') + pg_total_relation_size('manifold.seal_subtrees') + pg_total_relation_size('manifold.sealed_logs')`).Scan(&stored))
	}
	b.ReportMetric(float64(b.N)*events/sealing.Seconds(), "events/s")
	b.ReportMetric(float64(stored)/float64(b.N)/events, "bytes/event")
}
