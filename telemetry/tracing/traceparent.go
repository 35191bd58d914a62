package tracing

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/manifold-es/manifold/domain"
)

// member is the member of an event's metadata that holds its traceparent.
const member = "traceparent"

// Of returns the trace context in an event's metadata. It is invalid if there is none.
func Of(metadata json.RawMessage) trace.SpanContext {
	if len(metadata) == 0 || metadata[0] != '{' || !bytes.Contains(metadata, []byte(`"`+member+`"`)) {
		return trace.SpanContext{}
	}
	var found trace.SpanContext
	scan := domain.NewStoredJSONScanner(metadata)
	err := scan.Object(func(name string) error {
		value, err := scan.Value()
		if name == member && len(value) > 2 && value[0] == '"' {
			found = parse(string(value[1 : len(value)-1]))
		}
		return err
	})
	if err != nil {
		return trace.SpanContext{}
	}
	return found
}

// textLength is the length of a traceparent: version, trace, parent and flags.
const textLength = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-00")

// parse returns the trace context of a traceparent in the form of W3C Trace Context. It is invalid if the text is.
func parse(text string) trace.SpanContext {
	if len(text) != textLength || text[2] != '-' || text[35] != '-' || text[52] != '-' || strings.ToLower(text) != text {
		return trace.SpanContext{}
	}
	version, err := hex.DecodeString(text[:2])
	if err != nil || version[0] == 0xff {
		return trace.SpanContext{}
	}
	flags, err := hex.DecodeString(text[53:])
	if err != nil {
		return trace.SpanContext{}
	}
	traceID, err := trace.TraceIDFromHex(text[3:35])
	if err != nil {
		return trace.SpanContext{}
	}
	spanID, err := trace.SpanIDFromHex(text[36:52])
	if err != nil {
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags[0]) & trace.FlagsSampled, Remote: true,
	})
}

// format returns a valid trace context as a traceparent.
func format(c trace.SpanContext) string {
	return "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-" + c.TraceFlags().String()
}

// Metadata returns the member of metadata with which an event continues the trace of another one, whose metadata is
// given. It begins with a comma, and is empty if the other event has no trace.
func Metadata(cause json.RawMessage) string {
	if c := Of(cause); c.IsValid() {
		return `,"` + member + `":"` + format(c) + `"`
	}
	return ""
}

// Traceparent returns the traceparent to send with a message, if ctx belongs to a trace. Otherwise it is empty.
func Traceparent(ctx context.Context) string {
	if c := trace.SpanContextFromContext(ctx); c.IsValid() {
		return format(c)
	}
	return ""
}
