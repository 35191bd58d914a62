package mongo_test

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/mongo/mongotest"
)

// BenchmarkSave compares saves of 1,000 new or existing documents with the client library's own InsertMany of the same
// documents. Only a real MongoDB gives meaningful results.
func BenchmarkSave(b *testing.B) {
	const n = 1000
	address := mongotest.Real(b)
	driver := open(b, address)
	defer driver.Close()
	batch := func(from int64, tag string) drivers.Batch {
		batch := drivers.Batch{From: from, To: from + n}
		for i := range int64(n) {
			batch.Upserts = append(batch.Upserts, domain.Document{ID: fmt.Sprint(tag, i), Version: from + i + 1, Data: fmt.Appendf(nil,
				`{"status":"placed","customer":{"name":"Ada Lovelace","city":"London"},"total":1234.5,"n":%d,"items":["A-1","B-22"]}`, i)})
		}
		return batch
	}
	save := func(b *testing.B, same bool) {
		tenant, at := domain.NewTenantID(), int64(0)
		build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "bench"}, Number: 1}
		for b.Loop() {
			tag := "same "
			if !same {
				tag = fmt.Sprint(at, " ")
			}
			if err := driver.Save(b.Context(), build, tenant, batch(at, tag)); err != nil {
				b.Fatal(err)
			}
			at += n
		}
	}
	b.Run("new", func(b *testing.B) { save(b, false) })
	b.Run("over", func(b *testing.B) { save(b, true) })
	b.Run("InsertMany", func(b *testing.B) {
		collection := database(b, address).Collection("plain")
		for b.Loop() {
			rows := make([]bson.D, 0, n)
			for _, document := range batch(0, "").Upserts {
				rows = append(rows, bson.D{{Key: "id", Value: document.ID}, {Key: "version", Value: document.Version}, {Key: "status", Value: "placed"},
					{Key: "customer", Value: bson.D{{Key: "name", Value: "Ada Lovelace"}, {Key: "city", Value: "London"}}}, {Key: "total", Value: 1234.5},
					{Key: "items", Value: bson.A{"A-1", "B-22"}}})
			}
			if _, err := collection.InsertMany(b.Context(), rows); err != nil {
				b.Fatal(err)
			}
		}
	})
}
