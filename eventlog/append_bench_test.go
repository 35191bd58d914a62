package eventlog_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
)

// benchData is the data of a benchmark's event: some 200 bytes, as an order's line would have.
const benchData = `{"sku": "A-1042", "quantity": 3, "price": 1299, "currency": "EUR", "warehouse": "north", "customer": "c-88123", "note": "leave with the neighbour if nobody opens", "gift": false, "tags": ["new", "eu"]}`

// durable is a migrated database whose server syncs every commit.
func durable(b *testing.B) pgtest.DB {
	b.Helper()
	server, err := embedded.Start(b.Context(), embedded.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { server.Stop(context.Background()) })
	return pgtest.Migrated(b, server)
}

// BenchmarkAppend appends one event per request, b.N in total, and reports events/s and latencies. The limit that it is
// compared with is "copy": COPY of the same rows, 2,000 at a time, into a similar table without row-level security.
func BenchmarkAppend(b *testing.B) {
	db := durable(b)
	for _, run := range []struct{ clients, tenants, stores int }{{1, 1, 1}, {64, 1, 1}, {64, 1, 2}, {1024, 1, 1}, {64, 64, 1}} {
		b.Run(fmt.Sprintf("clients=%d/tenants=%d/stores=%d", run.clients, run.tenants, run.stores), func(b *testing.B) {
			benchAppend(b, db, run.clients, run.tenants, run.stores)
		})
	}
	b.Run("copy", func(b *testing.B) { benchCopy(b, db) })
}

func benchAppend(b *testing.B, db pgtest.DB, clients, tenants, processes int) {
	var batches atomic.Int64
	stores := make([]*tables.Tables, processes)
	for i := range stores {
		s, err := tables.Open(b.Context(), tables.Config{
			AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention),
			Observer: eventlog.Observer{Appended: func(int, int, time.Duration) { batches.Add(1) }},
		})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		stores[i] = s
	}
	ids := make([]domain.TenantID, tenants)
	for i := range ids {
		ids[i] = domain.NewTenantID()
	}
	append1 := func(client int) {
		_, err := stores[client%processes].Append(b.Context(), ids[client%tenants], domain.Append{Streams: []domain.StreamAppend{{
			Stream: fmt.Sprintf("order-%d", client), Expected: domain.Any,
			Events: []domain.NewEvent{{Type: "ItemAdded", Data: json.RawMessage(benchData)}},
		}}})
		if err != nil {
			b.Error(err)
		}
	}
	var warm sync.WaitGroup
	for c := range clients {
		warm.Go(func() { append1(c) })
	}
	warm.Wait()
	batches.Store(0)
	took := make([][]time.Duration, clients)
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				began := time.Now()
				append1(c)
				took[c] = append(took[c], time.Since(began))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Concat(took...)
	slices.Sort(all)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(b.N)/float64(max(1, batches.Load())), "events/batch")
}

func benchCopy(b *testing.B, db pgtest.DB) {
	conn, err := pgx.Connect(b.Context(), db.URL(pgtest.RoleSuperuser))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(context.Background())
	_, err = conn.Exec(b.Context(), `drop table if exists manifold.copied; create table manifold.copied (like manifold.events including all)`)
	if err != nil {
		b.Fatal(err)
	}
	tenant := domain.NewTenantID()
	b.ResetTimer()
	for n := 0; n < b.N; n += 2000 {
		from := n
		_, err := conn.CopyFrom(b.Context(), pgx.Identifier{"manifold", "copied"},
			[]string{"tenant_id", "position", "event_id", "stream_id", "stream_version", "event_type", "event_data", "created_at"},
			pgx.CopyFromSlice(min(2000, b.N-from), func(i int) ([]any, error) {
				n := from + i
				return []any{[16]byte(tenant), n + 1, [16]byte(domain.NewEventID()), fmt.Sprintf("order-%d", n%64), n / 64, "ItemAdded", json.RawMessage(benchData), time.Now()}, nil
			}))
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
