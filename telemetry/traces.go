package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Traces exports a process's spans, as OpenTelemetry's environment variables (OTEL_...) configure it. Spans are
// exported in the background; while the collector is slow or down, they are dropped, and nothing waits for them.
type Traces struct {
	provider *sdktrace.TracerProvider
}

// NewTraces returns nil if the environment configures no export, or one that is not supported. It logs the latter.
// version and instance describe the process to the collector.
func NewTraces(version, instance string, log *slog.Logger) *Traces {
	wanted, err := tracesWanted(os.Getenv)
	if err != nil {
		log.Warn("no traces are exported", "error", err)
	}
	if !wanted || err != nil {
		return nil
	}
	// Both return errors only for what the environment has wrong: neither connects.
	ctx := context.Background()
	otlp, err := otlptracehttp.New(ctx)
	if err != nil {
		log.Warn("no traces are exported", "error", err)
		return nil
	}
	of, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "manifold"), attribute.String("service.version", version), attribute.String("service.instance.id", instance),
	), resource.WithFromEnv())
	if err != nil {
		log.Warn("the traces' description is incomplete; check OTEL_RESOURCE_ATTRIBUTES", "error", err)
	}
	return &Traces{sdktrace.NewTracerProvider(sdktrace.WithBatcher(&exporter{SpanExporter: otlp, log: log}), sdktrace.WithResource(of))}
}

// tracesWanted reports whether the environment asks for traces. Its error says what is not supported.
func tracesWanted(getenv func(string) string) (bool, error) {
	exporter := getenv("OTEL_TRACES_EXPORTER")
	configured := exporter != "" || getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	switch {
	case !configured || exporter == "none" || strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true"):
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER: %q is not supported; write otlp or none", exporter)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if protocol := getenv(name); protocol == "http/protobuf" {
			break // the first one decides
		} else if protocol != "" {
			return false, fmt.Errorf("%s: %q is not supported; write http/protobuf, and the endpoint of the collector for it, usually port 4318", name, protocol)
		}
	}
	return true, nil
}

// Provider returns what spans are recorded with.
func (t *Traces) Provider() trace.TracerProvider { return t.provider }

// Shutdown exports the spans that are left, until ctx ends. Later spans are not recorded.
func (t *Traces) Shutdown(ctx context.Context) {
	_ = t.provider.Shutdown(ctx) // the exporter logs failures
}

// exporter logs when spans cannot be exported, once until they can be again.
type exporter struct {
	sdktrace.SpanExporter
	log     *slog.Logger
	failing atomic.Bool
}

// ExportSpans implements sdktrace.SpanExporter.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	switch err := e.SpanExporter.ExportSpans(ctx, spans); {
	case err != nil && e.failing.CompareAndSwap(false, true):
		e.log.Warn("traces cannot be exported, and are dropped until they can; check OTEL_EXPORTER_OTLP_ENDPOINT", "error", err)
	case err == nil && e.failing.CompareAndSwap(true, false):
		e.log.Info("traces are exported again")
	}
	return nil
}
