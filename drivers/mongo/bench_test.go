package mongo

import (
	"testing"
)

// order is a document as projections make them.
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
