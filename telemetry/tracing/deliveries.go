package tracing

import (
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/manifold-es/manifold/domain"
)

// deliverySpans is how many deliveries a Deliveries records in a second. A log may have thousands of followers, each of
// which gets every event.
const deliverySpans = 100

// Deliveries records spans of events that are sent to clients: one for each batch with traced events, at most
// deliverySpans a second. Its methods may be called concurrently. A nil Deliveries records nothing.
type Deliveries struct {
	tracer *Tracer
	limit  *rate.Limiter
}

// NewDeliveries returns a Deliveries that records with a Tracer. Without one it returns nil.
func NewDeliveries(tracer *Tracer) *Deliveries {
	if tracer == nil {
		return nil
	}
	return &Deliveries{tracer, rate.NewLimiter(deliverySpans, deliverySpans)}
}

// Transport is the attribute with the way in which events are delivered, as in metrics.
func Transport(name string) attribute.KeyValue { return attribute.String("manifold.transport", name) }

// Record records that a batch of events was sent to a client of a tenant since the given time. metadata returns the
// metadata of the event with an index below events. The span belongs to the first traced event, and links to the traces
// of the others. Callers should check for nil first, because the arguments may be allocated.
func (d *Deliveries) Record(tenant domain.TenantID, events int, metadata func(i int) json.RawMessage, began time.Time, attributes ...attribute.KeyValue) {
	if d == nil || events == 0 || d.limit.Tokens() < 1 {
		return
	}
	of := Sampled(events, metadata)
	if len(of) == 0 || !d.limit.Allow() {
		return
	}
	attributes = append(attributes, Tenant(tenant), attribute.Int("manifold.events", events))
	d.tracer.Record(of, began, "deliver", attributes...).End(nil)
}

// Sampled returns the sampled trace contexts of a batch of events, as many as Record needs. metadata returns the
// metadata of the event with an index below events.
func Sampled(events int, metadata func(i int) json.RawMessage) (of []trace.SpanContext) {
	for i := range events {
		if c := Of(metadata(i)); c.IsSampled() {
			of = append(of, c)
		}
		if len(of) > 2*MaxLinks {
			break // enough, even if several are from one request
		}
	}
	return of
}
