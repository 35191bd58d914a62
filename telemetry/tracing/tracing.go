// Package tracing records the service's own work as OpenTelemetry spans. A Tracer begins them: Request for a request of
// the API, Within for a part of it, Continue and Record for what an event causes later.
//
// A trace leaves the request with its events: each keeps a traceparent in its metadata, and Of reads it again. So only
// a request starts a trace, and its sampling decides about everything that follows. A nil Tracer, and a nil Span,
// record nothing and allocate nothing.
//
// Spans contain names, numbers and codes. They never contain events' data, keys, or the texts of errors, which may
// quote either.
package tracing

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/manifold-es/manifold/domain"
)

// scope is the name of the instrumentation in exported spans.
const scope = "github.com/manifold-es/manifold"

// MaxLinks limits the links of a span that Record records.
const MaxLinks = 32

// Tracer begins spans. Its methods may be called concurrently. A nil Tracer begins none.
type Tracer struct {
	tracer trace.Tracer
}

// New returns a Tracer that records with a provider. Without a provider it returns nil.
func New(provider trace.TracerProvider) *Tracer {
	if provider == nil {
		return nil
	}
	return &Tracer{provider.Tracer(scope)}
}

// Span is a span under way. Its methods may be called concurrently, also after End, and on nil.
type Span struct {
	span trace.Span
}

// Request begins the span of a request, which continues the trace of the header. If the span is recorded, Request puts
// it into the header as its traceparent: the request's events then carry it. Otherwise the span is nil.
func (t *Tracer) Request(ctx context.Context, header http.Header, name string, attributes ...attribute.KeyValue) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(header))
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
	if !span.SpanContext().IsSampled() || !span.IsRecording() {
		return ctx, nil
	}
	header.Set("Traceparent", format(span.SpanContext()))
	return ctx, &Span{span}
}

// Within begins a span below that of ctx. It returns nil if ctx has none that is recorded.
func (t *Tracer) Within(ctx context.Context, name string) *Span {
	if t == nil || !trace.SpanFromContext(ctx).IsRecording() {
		return nil
	}
	_, span := t.tracer.Start(ctx, name)
	return &Span{span}
}

// Continue begins a span for what is done because of an event, whose trace context is parent. The returned context has
// the span, or without a span the parent, so that code of others can continue the trace. The span is nil if the event's
// trace is not sampled.
func (t *Tracer) Continue(ctx context.Context, parent trace.SpanContext, kind trace.SpanKind, name string) (context.Context, *Span) {
	if !parent.IsValid() {
		return ctx, nil
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	if t == nil || !parent.IsSampled() {
		return ctx, nil
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind))
	return ctx, &Span{span}
}

// Record begins a span for work on several requests or events together, which began at the given time. It belongs to
// the first sampled trace context, and links to the other ones, at most MaxLinks. Record returns nil if none is
// sampled.
func (t *Tracer) Record(of []trace.SpanContext, began time.Time, name string, attributes ...attribute.KeyValue) *Span {
	if t == nil {
		return nil
	}
	var parent trace.SpanContext
	var links []trace.Link
	seen := make(map[trace.SpanID]struct{})
	for _, c := range of {
		if _, again := seen[c.SpanID()]; again || !c.IsValid() || !c.IsSampled() {
			continue
		}
		seen[c.SpanID()] = struct{}{}
		if !parent.IsValid() {
			parent = c
		} else if len(links) < MaxLinks {
			links = append(links, trace.Link{SpanContext: c})
		}
	}
	if !parent.IsValid() {
		return nil
	}
	_, span := t.tracer.Start(trace.ContextWithSpanContext(context.Background(), parent), name,
		trace.WithTimestamp(began), trace.WithLinks(links...), trace.WithAttributes(attributes...))
	return &Span{span}
}

// Context returns the span's trace context.
func (s *Span) Context() trace.SpanContext {
	if s == nil {
		return trace.SpanContext{}
	}
	return s.span.SpanContext()
}

// Set sets attributes. Callers on a busy path should check for nil first, because the list may be allocated.
func (s *Span) Set(attributes ...attribute.KeyValue) {
	if s != nil {
		s.span.SetAttributes(attributes...)
	}
}

// Note adds an event to the span, with the time at which it happened.
func (s *Span) Note(name string, at time.Time) {
	if s != nil {
		s.span.AddEvent(name, trace.WithTimestamp(at))
	}
}

// Link links the span to another one.
func (s *Span) Link(to trace.SpanContext) {
	if s != nil {
		s.span.AddLink(trace.Link{SpanContext: to})
	}
}

// Fail sets the span's status to an error of a kind, which is a short code.
func (s *Span) Fail(kind string) {
	if s != nil {
		s.span.SetStatus(codes.Error, kind)
		s.span.SetAttributes(attribute.String("error.type", kind))
	}
}

// End ends the span. An error fails it, with the error's code.
func (s *Span) End(err error) {
	if s == nil {
		return
	}
	if err != nil {
		s.Fail(kindOf(err))
	}
	s.span.End()
}

// kindOf returns a code for an error, and nothing of its text.
func kindOf(err error) string {
	if e, ok := errors.AsType[*domain.Error](err); ok {
		return string(e.Code)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline-exceeded"
	}
	return "_OTHER" // OpenTelemetry's word for it
}

// Tenant is the attribute with a tenant's id.
func Tenant(id domain.TenantID) attribute.KeyValue {
	return attribute.String("manifold.tenant", id.String())
}
