package expr

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// The fold that is measured is ItemAdded of the projection order-summary.
const itemAdded = `merge(doc, {"total": doc.total + event.data.price * event.data.qty, "items": doc.items + [event.data.sku]})`

func orderEvent() domain.Event {
	return domain.Event{
		Stream: "order-1042", Version: 4, Position: 1_000_004, Type: "ItemAdded", RecordedAt: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC),
		Data: json.RawMessage(`{"qty": 3, "sku": "SKU-1", "price": 12.35}`),
	}
}

const orderDocument = `{"items": ["SKU-7", "SKU-9", "SKU-2"], "total": 104.5, "status": "placed", "customer": "c-77"}`

// BenchmarkFold measures a fold without reading or writing JSON.
func BenchmarkFold(b *testing.B) {
	fold, err := CompileFold(ScopeProjection, itemAdded)
	if err != nil {
		b.Fatal(err)
	}
	doc, err := ParseDocument([]byte(orderDocument))
	if err != nil {
		b.Fatal(err)
	}
	added := orderEvent()
	event := NewEvent(&added)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := fold.Eval(doc, event); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFoldWithJSON measures the same with reading the event and the document, and writing the document.
func BenchmarkFoldWithJSON(b *testing.B) {
	fold, err := CompileFold(ScopeProjection, itemAdded)
	if err != nil {
		b.Fatal(err)
	}
	event := orderEvent()
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		doc, err := ParseDocument([]byte(orderDocument))
		if err != nil {
			b.Fatal(err)
		}
		folded, err := fold.Eval(doc, NewEvent(&event))
		if err != nil {
			b.Fatal(err)
		}
		if out, err = AppendJSON(out[:0], folded); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkKey measures the default key.
func BenchmarkKey(b *testing.B) {
	key, err := CompileKey("event.stream")
	if err != nil {
		b.Fatal(err)
	}
	event := orderEvent()
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := key.Eval(NewEvent(&event)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCompile measures what declaring a projection costs for each expression.
func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := CompileFold(ScopeProjection, itemAdded); err != nil {
			b.Fatal(err)
		}
	}
}
