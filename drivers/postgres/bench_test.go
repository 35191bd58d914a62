package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

const benchDocuments = 10_000

func benchBatch(from int64) drivers.Batch {
	batch := drivers.Batch{From: from, To: from + 1, Upserts: make([]domain.Document, benchDocuments)}
	for i := range batch.Upserts {
		batch.Upserts[i] = domain.Document{ID: fmt.Sprintf("order-%08d", i), Version: from + 1, Data: json.RawMessage(fmt.Sprintf(
			`{"status": "placed", "customer": "customer-%d", "total": %d.5, "items": ["a-%d", "b-%d", "c"], "address": {"street": "Main Street %d", "city": "Springfield"}, "revision": %d}`,
			i%997, i, i, i, i, from))}
	}
	return batch
}

func benchDriver(b *testing.B) (pgtest.DB, *postgres.Driver) {
	db := pgtest.Database(b)
	d, err := postgres.Open(b.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(d.Close)
	return db, d
}

// BenchmarkSave measures saves of 10,000 documents into a build's own table and into the common one, new and over older
// versions. For comparison, it measures what the database needs for the same rows in a table with the same key.
func BenchmarkSave(b *testing.B) {
	db, d := benchDriver(b)
	var number int64
	for _, own := range []bool{false, true} {
		for _, over := range []bool{false, true} {
			name := "table"
			if own {
				name = "common"
			}
			if over {
				name += "-over"
			}
			b.Run(name, func(b *testing.B) {
				tenant := domain.NewTenantID()
				number++
				build := domain.Build{ProjectionID: domain.ProjectionID{Name: "bench"}, Number: number}
				if own {
					build.Owner = tenant
				}
				if err := d.CreateTemporaryTable(b.Context(), build); err != nil {
					b.Fatal(err)
				}
				var from int64
				for b.Loop() {
					b.StopTimer()
					if !over {
						// A tenant without documents.
						from, tenant = 0, domain.NewTenantID()
						if own {
							build.Owner = tenant
						}
					}
					batch := benchBatch(from)
					if !over {
						batch.New = len(batch.Upserts)
					}
					b.StartTimer()
					if err := d.Save(b.Context(), build, tenant, batch); err != nil {
						b.Fatal(err)
					}
					from++
				}
				b.ReportMetric(float64(b.N)*benchDocuments/b.Elapsed().Seconds(), "documents/s")
			})
		}
	}
	for _, copying := range []bool{true, false} {
		name := "limit-insert"
		if copying {
			name = "limit-copy"
		}
		b.Run(name, func(b *testing.B) {
			conn, err := pgx.Connect(b.Context(), db.URL(pgtest.RoleSuperuser))
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close(context.Background())
			const table = `create table plain (tenant_id uuid, build bigint, id text collate "C", version bigint, document jsonb, primary key (tenant_id, build, id))`
			tenant := domain.NewTenantID().String()
			batch := benchBatch(0)
			ids, versions, data := make([]string, benchDocuments), make([]int64, benchDocuments), make([]json.RawMessage, benchDocuments)
			rows := make([][]any, benchDocuments)
			for i, document := range batch.Upserts {
				ids[i], versions[i], data[i] = document.ID, document.Version, document.Data
				rows[i] = []any{tenant, int64(1), document.ID, document.Version, document.Data}
			}
			if _, err := conn.Exec(b.Context(), table); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				b.StopTimer()
				if _, err := conn.Exec(b.Context(), "truncate plain"); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if copying {
					_, err = conn.CopyFrom(b.Context(), pgx.Identifier{"plain"}, []string{"tenant_id", "build", "id", "version", "document"}, pgx.CopyFromRows(rows))
				} else {
					_, err = conn.Exec(b.Context(), "insert into plain select $1::uuid, 1, * from unnest($2::text[], $3::bigint[], $4::jsonb[])", tenant, ids, versions, data)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			if _, err := conn.Exec(b.Context(), "drop table plain"); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)*benchDocuments/b.Elapsed().Seconds(), "documents/s")
		})
	}
}
