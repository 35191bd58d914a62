package egress_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/manifold-es/manifold/delivery/egress"
	"github.com/manifold-es/manifold/delivery/egress/egresstest"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// A message continues the trace of its event, and one that is refused has a failed span.
func TestMessagesContinueTraces(t *testing.T) {
	t.Parallel()
	b := egresstest.NewBench(t, 1)
	tenant := b.Tenants[0]
	const traceID, parentID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	stream := domain.StreamAppend{Stream: "order-1", Expected: domain.Any}
	for _, flags := range []string{"01", "00", "01"} {
		stream.Events = append(stream.Events, domain.NewEvent{Type: "Placed", Data: json.RawMessage(`{}`),
			Metadata: json.RawMessage(fmt.Sprintf(`{"traceparent": "00-%s-%s-%s"}`, traceID, parentID, flags))})
	}
	stream.Events = append(stream.Events, domain.NewEvent{Type: "Placed", Data: json.RawMessage(`{}`)})
	if _, err := b.Store.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{stream}}); err != nil {
		t.Fatal(err)
	}
	s := &script{}
	s.failing(func(m *egress.Message) error {
		if attribute(m, "manifoldversion") == "3" {
			return egress.ErrRefused
		}
		return nil
	})
	spans := tracetest.NewSpanRecorder()
	config := of(s)
	config.Tracer = tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	b.Start(t, config)
	s.expect(t, "order-1@1", "order-1@2", "order-1@4")
	egresstest.Until(t, "both spans are ended", func() bool { return len(spans.Ended()) == 2 })
	first, refused := spans.Ended()[0], spans.Ended()[1]
	for _, span := range spans.Ended() {
		if span.Parent().TraceID().String() != traceID || span.Parent().SpanID().String() != parentID || span.Name() != "publish" {
			t.Errorf("a span is %v", span)
		}
	}
	if refused.Status().Code != codes.Error || refused.Status().Description != "refused" || first.Status().Code == codes.Error {
		t.Errorf("the spans' status is %v and %v", first.Status(), refused.Status())
	}
	for n, want := range []string{"00-" + traceID + "-" + first.SpanContext().SpanID().String() + "-01", "00-" + traceID + "-" + parentID + "-00", ""} {
		if got := s.stored[n].Traceparent; got != want {
			t.Errorf("message %d has the traceparent %q, not %q", n, got, want)
		}
	}
}
