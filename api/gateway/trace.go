package gateway

import (
	"context"
	"math"
	"net/http"

	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// traceHeader takes the optional field traceparent of a message. It returns the header that an HTTP request would have,
// or nil if there is neither a field nor a tracer.
func (g *connection) traceHeader(f *messageFields) http.Header {
	given := f.anyText("traceparent", math.MaxInt)
	switch {
	case given != "":
		return http.Header{"Traceparent": {given}}
	case g.config.Tracer != nil:
		return http.Header{}
	}
	return nil
}

// traced returns the operation of a message within a span, which continues the trace of the header. As for an HTTP
// request, the span is put into the header before the operation runs, and only faults of the service fail it.
func (g *connection) traced(
	name string, header http.Header, do func(ctx context.Context) error,
) func(ctx context.Context) error {
	if g.config.Tracer == nil {
		return do
	}
	tenant := g.caller.Tenant
	return func(ctx context.Context) error {
		ctx, span := g.config.Tracer.Request(ctx, header, name, tracing.Tenant(tenant), tracing.Transport(wire.ByWebSocket))
		err := do(ctx)
		failure := err
		if e, fault := problem.Of(err); !fault && problem.KindOf(e.Code).Status < http.StatusInternalServerError {
			failure = nil
		}
		span.End(failure)
		return err
	}
}
