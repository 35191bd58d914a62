package tracing_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

func recorder() (*tracing.Tracer, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	return tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))), spans
}

const sampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func metadataOf(traceparent string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"user": "u", "traceparent": %q, "a": {"traceparent": 1}}`, traceparent))
}

// What a context formats, an event's metadata gives back.
func TestTraceparentRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var c trace.SpanContextConfig
		copy(c.TraceID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "trace"))
		copy(c.SpanID[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "span"))
		c.TraceFlags = trace.TraceFlags(rapid.IntRange(0, 1).Draw(t, "flags"))
		want := trace.NewSpanContext(c)
		text := tracing.Traceparent(trace.ContextWithSpanContext(context.Background(), want))
		if !want.IsValid() {
			if text != "" {
				t.Fatalf("an invalid context is %q", text)
			}
			return
		}
		if got := tracing.Of(metadataOf(text)); !got.Equal(want.WithRemote(true)) {
			t.Fatalf("%q is %v, not %v", text, got, want)
		}
	})
}

// No metadata that a client may send causes a panic, and only a valid traceparent becomes a header.
func TestOfAnyMetadata(t *testing.T) {
	t.Parallel()
	for _, metadata := range []string{``, `null`, `7`, `"traceparent"`, `["traceparent"]`, `{}`, `{"traceparent": 5}`, `{"traceparent": null}`, `{"traceparent": ""}`,
		`{"traceparent": "\r\nX: y"}`, `{"a": {"traceparent": "` + sampled + `"}}`, `{"traceparent": {"traceparent": "` + sampled + `"}}`,
		`{"traceparent": "` + sampled[:53] + `0G"}`, `{"traceparent": "ff` + sampled[2:] + `"}`, `{"traceparent": "` + sampled + `-x"}`,
		`{"traceparent": "00-00000000000000000000000000000000-b7ad6b7169203331-01"}`, `{"traceparent": "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`,
	} {
		if c := tracing.Of(json.RawMessage(metadata)); c.IsValid() {
			t.Errorf("%s: %v", metadata, c)
		}
		if text := tracing.Metadata(json.RawMessage(metadata)); text != "" {
			t.Errorf("%s: %s", metadata, text)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-fA-F]{2}`)).Draw(t, "text")
		metadata, err := json.Marshal(map[string]string{"traceparent": text})
		if err != nil {
			t.Fatal(err)
		}
		if c := tracing.Of(metadata); c.IsValid() && (len(text) != len(sampled) || c.TraceID().String() != text[3:35]) {
			t.Fatalf("%q is %v", text, c)
		}
	})
	if got, want := tracing.Metadata(metadataOf(sampled)), `,"traceparent":"`+sampled+`"`; got != want {
		t.Errorf("it continues with %s", got)
	}
}

func TestSpansOfARequest(t *testing.T) {
	t.Parallel()
	tracer, spans := recorder()
	header := http.Header{"Traceparent": {sampled}}
	ctx, request := tracer.Request(t.Context(), header, "appendToStream")
	within := tracer.Within(ctx, "append")
	within.End(domain.Errorf(domain.CodeVersionConflict, "", "the secret is 42"))
	request.End(nil)
	request.Fail("late") // ignored
	ended := spans.Ended()
	if len(ended) != 2 || ended[0].Parent().SpanID() != ended[1].SpanContext().SpanID() || ended[1].Parent().TraceID().String() != sampled[3:35] ||
		ended[0].Status().Description != string(domain.CodeVersionConflict) || len(ended[0].Events()) > 0 {
		t.Errorf("the spans are %v", ended)
	}
	if got := tracing.Of(metadataOf(header.Get("Traceparent"))); got.SpanID() != request.Context().SpanID() {
		t.Errorf("the header is %q", header.Get("Traceparent"))
	}
	unsampled := sampled[:54] + "0"
	header = http.Header{"Traceparent": {unsampled}}
	ctx, request = tracer.Request(t.Context(), header, "appendToStream")
	if within := tracer.Within(ctx, "append"); request != nil || within != nil || header.Get("Traceparent") != unsampled {
		t.Error("a trace is recorded that is not sampled")
	}
	if tracer.Within(t.Context(), "append") != nil {
		t.Error("a trace begins within a request")
	}
}

func TestSpansOfEvents(t *testing.T) {
	t.Parallel()
	tracer, spans := recorder()
	parent := tracing.Of(metadataOf(sampled))
	ctx, span := tracer.Continue(t.Context(), parent, trace.SpanKindClient, "webhook")
	if span.Context().TraceID() != parent.TraceID() || tracing.Traceparent(ctx) == sampled {
		t.Errorf("%v continues with %v", parent, span.Context())
	}
	span.End(errors.New("the secret is 42"))
	ctx, span = (*tracing.Tracer)(nil).Continue(t.Context(), parent, trace.SpanKindClient, "webhook")
	if span != nil || tracing.Traceparent(ctx) != sampled {
		t.Errorf("without a tracer, it continues with %q", tracing.Traceparent(ctx))
	}
	if ctx, span := tracer.Continue(t.Context(), trace.SpanContext{}, trace.SpanKindClient, "webhook"); span != nil || ctx != t.Context() {
		t.Error("a delivery begins a trace")
	}

	unsampled := tracing.Of(metadataOf(sampled[:54] + "0"))
	if span := tracer.Record([]trace.SpanContext{{}, unsampled}, time.Now(), "fold"); span != nil {
		t.Error("a batch begins a trace")
	}
	of := []trace.SpanContext{unsampled, parent, parent}
	for n := range 2 * tracing.MaxLinks {
		of = append(of, parent.WithSpanID(trace.SpanID{byte(n + 1)}))
	}
	tracer.Record(of, time.Now().Add(-time.Hour), "fold").End(nil)
	fold := spans.Ended()[1]
	if !fold.Parent().Equal(parent) || len(fold.Links()) != tracing.MaxLinks || time.Since(fold.StartTime()) < time.Hour {
		t.Errorf("the fold is %v with %d links", fold, len(fold.Links()))
	}
}

// Without traces, nothing is allocated. Allocations cannot be counted in parallel with other tests.
func TestNothingIsAllocatedWithoutTraces(t *testing.T) {
	var tracer *tracing.Tracer
	header := http.Header{}
	if allocated := testing.AllocsPerRun(100, func() {
		ctx, request := tracer.Request(t.Context(), header, "appendToStream")
		within := tracer.Within(ctx, "append")
		within.Note("written", time.Time{})
		within.Link(request.Context())
		within.End(nil)
		tracer.Record(nil, time.Time{}, "commit").End(nil)
		tracing.NewDeliveries(tracer).Record(domain.TenantID{}, 1, nil, time.Time{})
		request.End(nil)
	}); allocated > 0 {
		t.Errorf("%v allocations", allocated)
	}
}
