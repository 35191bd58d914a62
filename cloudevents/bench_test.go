package cloudevents_test

import (
	"testing"

	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

func benchmarked(metadata string) domain.Event {
	event := domain.Event{ID: domain.NewEventID(), Stream: "order-1001", Version: 3, Position: 17, Type: "OrderPlaced", Data: []byte(`{"customer": "c-17", "total": 12.5}`), RecordedAt: recorded, OccurredAt: recorded}
	if metadata != "" {
		event.Metadata = []byte(metadata)
	}
	return event
}

func BenchmarkEncoder(b *testing.B) {
	for name, metadata := range map[string]string{
		"Plain": ``, "Metadata": `{"user": "u-1"}`, "Traced": `{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`,
		"Kept": `{"cloudevents": {"id": "A-1", "source": "https://shop.example/orders", "subject": "a/b", "datacontenttype": "application/json"}}`,
	} {
		b.Run(name, func(b *testing.B) {
			var encoder cloudevents.Encoder
			var buffer []byte
			event := benchmarked(metadata)
			b.ReportAllocs()
			for b.Loop() {
				buffer = encoder.Append(buffer[:0], &event)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	text := []byte(`{"specversion":"1.0","id":"A-1","source":"https://shop.example/orders","type":"T","subject":"a/b","time":"2026-03-01T09:30:00Z","datacontenttype":"application/json","data":{"customer": "c-17", "total": 12.5}}`)
	b.ReportAllocs()
	for b.Loop() {
		event, err := cloudevents.Parse(text)
		if err == nil {
			_, err = event.NewEvent("order-1001")
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// Encoding ordinary events allocates no memory, since they may have many followers.
func TestEncodingAllocatesNothing(t *testing.T) {
	var encoder cloudevents.Encoder
	event := benchmarked(`{"user": "u-1"}`)
	buffer := encoder.Append(nil, &event)
	if allocations := testing.AllocsPerRun(100, func() { buffer = encoder.Append(buffer[:0], &event) }); allocations > 0 {
		t.Errorf("an event is encoded with %v allocations", allocations)
	}
}
