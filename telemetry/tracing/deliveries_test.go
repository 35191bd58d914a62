package tracing_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// A batch is one span. However many followers there are, a second has a bounded number of spans.
func TestDeliveriesAreBounded(t *testing.T) {
	t.Parallel()
	tracer, spans := recorder()
	deliveries, tenant := tracing.NewDeliveries(tracer), domain.NewTenantID()
	events := []json.RawMessage{nil, metadataOf(sampled), json.RawMessage(`{}`)}
	metadata := func(i int) json.RawMessage { return events[i] }
	began := time.Now()
	deliveries.Record(tenant, 1, metadata, began) // without a trace
	deliveries.Record(tenant, 0, metadata, began)
	for range 10_000 {
		deliveries.Record(tenant, len(events), metadata, began, tracing.Transport("sse"))
	}
	recorded := spans.Ended()
	if most := 100 + int(100*time.Since(began).Seconds()) + 1; len(recorded) < 100 || len(recorded) > most {
		t.Fatalf("%d spans are recorded; at most %d are allowed", len(recorded), most)
	}
	if span := recorded[0]; span.Name() != "deliver" || span.Parent().TraceID().String() != sampled[3:35] || len(span.Attributes()) != 3 {
		t.Errorf("the span is %v with %v", span, span.Attributes())
	}
}
