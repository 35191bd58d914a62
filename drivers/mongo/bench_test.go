package mongo

import (
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// order is a document as projections produce it.
const order = `{"status":"placed","customer":{"name":"Ada Lovelace","city":"London","vip":true},"total":1234.5,"items":[{"sku":"A-1","qty":2,"price":10},` +
	`{"sku":"B-22","qty":1,"price":1214.5}],"note":"leave it at the door, \"please\"","placedAt":"2026-01-02T03:04:05Z","count":3}`

func BenchmarkEncode(b *testing.B) {
	b.SetBytes(int64(len(order)))
	to := make([]byte, 0, 4096)
	for b.Loop() {
		var err error
		if to, err = encodeDocument(to[:0], []byte(order), ""); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	encoded, err := encodeDocument(nil, []byte(order), "")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(order)))
	to := make([]byte, 0, 4096)
	for b.Loop() {
		if _, err = decodeDocument(to[:0], encoded); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCommand measures the client side of a save: encoding its documents and commands.
func BenchmarkCommand(b *testing.B) {
	const n = 1000
	tenant := domain.NewTenantID()
	build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "bench"}, Number: 1}
	batch := drivers.Batch{To: n}
	for i := range int64(n) {
		batch.Upserts = append(batch.Upserts, domain.Document{ID: fmt.Sprint("order-", i), Version: i + 1, Data: []byte(order)})
	}
	concern := bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}}
	at := placeOf(build, tenant, table{layout: 1})
	for name, encode := range map[string]func(place, part, []write, bson.E) bson.Raw{"inserts": encodeInserts, "updates": encodeUpdates} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				parts, err := encodeBatch(at, batch)
				if err != nil {
					b.Fatal(err)
				}
				for _, part := range parts {
					encode(at, part, part.writes, concern)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/document")
		})
	}
}
