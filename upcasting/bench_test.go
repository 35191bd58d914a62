package upcasting

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// What an event costs on its way through the upcasters: without one for its type, at the newest version already, and
// with a chain of one step and of three.
func BenchmarkUpcast(b *testing.B) {
	set := setOf([]domain.Upcaster{
		up(domain.Everyone, "Placed", 1, `merge(event.data, {'customer': {'id': event.data.customer}})`),
		up(domain.Everyone, "Placed", 2, `merge(event.data, {'currency': 'EUR'})`),
		up(domain.Everyone, "Placed", 3, `merge(event.data, {'total': event.data.price * event.data.qty})`),
	})
	const data = `{"customer": "c-17", "price": 12.5, "qty": 3, "sku": "SKU-1"}`
	for _, c := range []struct{ name, eventType, data, metadata string }{
		{"none", "Paid", data, `{"user": "ann", "schemaVersion": 1}`},
		{"newest", "Placed", data, `{"user": "ann", "schemaVersion": 4}`},
		{"one", "Placed", data, `{"user": "ann", "schemaVersion": 3}`},
		{"three", "Placed", data, `{"user": "ann"}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				e := event(c.eventType, c.data, c.metadata)
				if fault := set.Upcast(nil, &e); fault != nil {
					b.Fatal(fault)
				}
			}
		})
	}
}
