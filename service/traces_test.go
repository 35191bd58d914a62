package service_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/manifold-es/manifold/delivery/reactor"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// With the program's own provider, a request's trace continues in the program's reactors, also in one that is called
// for a change which the request's event has caused. A failed request has the traceparent of its span.
func TestTracesOfAProgram(t *testing.T) {
	t.Parallel()
	type call struct {
		event  reactor.Event
		within trace.Span
	}
	called := make(chan call, 10)
	extensions := withReactor(reactor.Definition{Name: "mail", Categories: []string{"order", "orders.changed"}}, func(ctx context.Context, _ domain.TenantID, event reactor.Event) error {
		called <- call{event, trace.SpanFromContext(ctx)}
		return nil
	})
	spans := tracetest.NewSpanRecorder()
	extensions.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	p := startWith(t, configuration(pgtest.Database(t)), extensions)
	key := newTenant(t, p, "acme")
	as(t, p, key).put(`{"name": "orders", "source": {"categories": ["order"]}, "publishChanges": true, "on": {"Placed": "{'n': event.data.n}"}}`)
	send := func(body string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.Address()+"/v1/streams/order-1/events", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+key)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return response
	}
	if response := send(`[{"type": "Placed", "data": {"n": 1}}]`); response.StatusCode != 201 {
		t.Fatal(response.Status)
	}
	streams := make(map[string]bool)
	for range 2 {
		select {
		case c := <-called:
			streams[domain.Category(c.event.Stream)] = true
			if c.within.SpanContext().TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || !strings.Contains(string(c.event.Metadata), "0af7651916cd43dd8448eb211c80319c") {
				t.Errorf("the reactor is called for %s within %v", c.event.Metadata, c.within.SpanContext())
			}
		case <-time.After(time.Minute):
			t.Fatal("the reactor is not called")
		}
	}
	if !streams["order"] || !streams["orders.changed"] {
		t.Errorf("the reactor is called for %v", streams)
	}

	response := send(`[{"type": "Placed"}]`)
	var problem struct{ Traceparent string }
	if err := json.NewDecoder(response.Body).Decode(&problem); err != nil {
		t.Fatal(err)
	}
	stop(t, p)
	found := false
	for _, span := range spans.Ended() {
		found = found || span.Name() == "appendToStream" && problem.Traceparent == "00-0af7651916cd43dd8448eb211c80319c-"+span.SpanContext().SpanID().String()+"-01"
	}
	if response.StatusCode != 400 || !found {
		t.Errorf("the answer is %s with the traceparent %q", response.Status, problem.Traceparent)
	}
}
