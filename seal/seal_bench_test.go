//go:build unix

package seal_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// processorTime returns the processor time of this process, without PostgreSQL's.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // it has no other cause than a wrong argument
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// appendRows adds rows of events of about 250 bytes to logs.
func appendRows(b *testing.B, super *pgxpool.Pool, logs []domain.TenantID, events int) {
	b.Helper()
	for _, statement := range []string{`
		insert into manifold.logs (tenant_id, head) select l, $2 from unnest($1::uuid[]) l
		on conflict (tenant_id) do update set head = logs.head + $2`, `
		insert into manifold.events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data,
		  metadata, created_at)
		select l.tenant_id, l.head - $2 + n, gen_random_uuid(), 'order-' || n, l.head, 'OrderPlaced',
		  jsonb_build_object('customer', md5(n::text), 'note', repeat('x', 120), 'n', n), '{"user": "u-1"}', now()
		from manifold.logs l cross join generate_series(1, $2) n where l.tenant_id = any($1::uuid[])`,
	} {
		if _, err := super.Exec(b.Context(), statement, logs, events); err != nil {
			b.Fatal(err)
		}
	}
}

const storedSize = `
	select pg_total_relation_size('manifold.seals') + pg_total_relation_size('manifold.seal_subtrees') +
	  pg_total_relation_size('manifold.sealed_logs')`

// BenchmarkSeal seals a backlog of 200,000 events, without the Sealer's pauses.
func BenchmarkSeal(b *testing.B) {
	const events = 200_000
	db := pgtest.Database(b)
	s := tablestest.OpenAgain(b, db)
	super := db.Pool(b, pgtest.RoleSuperuser, 1)
	var sealing, processor time.Duration
	var stored int64
	for b.Loop() {
		log := domain.NewTenantID()
		appendRows(b, super, []domain.TenantID{log}, events)
		began, used := time.Now(), processorTime()
		tablestest.SealAll(b, s, log)
		sealing, processor = sealing+time.Since(began), processor+processorTime()-used
		tablestest.Must(b, super.QueryRow(b.Context(), storedSize).Scan(&stored))
	}
	b.ReportMetric(float64(b.N)*events/sealing.Seconds(), "events/s")
	b.ReportMetric(float64(processor.Nanoseconds())/float64(b.N)/events, "cpu-ns/event")
	b.ReportMetric(float64(stored)/float64(b.N)/events, "bytes/event")
}

// BenchmarkSealSlowLogs seals each of 20 logs after each of their 256 events, without the Sealer's pauses. The last
// event merges the rows of each log.
func BenchmarkSealSlowLogs(b *testing.B) {
	const logs, events = 20, 256
	db := pgtest.Database(b)
	s := tablestest.OpenAgain(b, db)
	super := db.Pool(b, pgtest.RoleSuperuser, 1)
	var sealing time.Duration
	var unmerged, merged int64
	all := make([]domain.TenantID, logs)
	for b.Loop() {
		for i := range all {
			all[i] = domain.NewTenantID()
		}
		for n := range events {
			if n == events-1 {
				tablestest.Must(b, super.QueryRow(b.Context(), storedSize).Scan(&unmerged))
			}
			appendRows(b, super, all, 1)
			began := time.Now()
			for _, log := range all {
				tablestest.SealAll(b, s, log)
			}
			sealing += time.Since(began)
		}
		tablestest.Must(b, super.QueryRow(b.Context(), storedSize).Scan(&merged))
	}
	b.ReportMetric(float64(b.N)*logs*events/sealing.Seconds(), "seals/s")
	b.ReportMetric(float64(unmerged)/float64(b.N)/logs/(events-1), "unmerged-bytes/event")
	b.ReportMetric(float64(merged)/float64(b.N)/logs/events, "merged-bytes/event")
}
