package telemetry

import (
	"strings"
	"testing"
)

func TestWhenTracesAreWanted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		environ string
		wanted  bool
		err     string // part of it
	}{
		{"", false, ""},
		{"OTEL_SERVICE_NAME=events", false, ""},
		{"OTEL_TRACES_EXPORTER=otlp", true, ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318", true, ""},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://collector:4318/v1/traces", true, ""},
		{"OTEL_TRACES_EXPORTER=none OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318", false, ""},
		{"OTEL_SDK_DISABLED=true OTEL_TRACES_EXPORTER=otlp", false, ""},
		{"OTEL_TRACES_EXPORTER=zipkin", false, "OTEL_TRACES_EXPORTER"},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", true, ""},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=grpc", false, "4318"},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf", true, ""},
		{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", false, ""},
	} {
		environ := make(map[string]string)
		for _, entry := range strings.Fields(c.environ) {
			name, value, _ := strings.Cut(entry, "=")
			environ[name] = value
		}
		wanted, err := tracesWanted(func(name string) string { return environ[name] })
		if wanted != c.wanted || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, %v", c.environ, wanted, err)
		}
	}
}
