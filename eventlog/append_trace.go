package eventlog

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// traceCommit records the commit of a batch with the outcome err, which may also be that another writer was first. The
// span belongs to the first traced request. It and those of the other requests link to each other.
func (s *Log) traceCommit(f *flight, err error) {
	if s.tracer == nil {
		return
	}
	var traced []*request
	var contexts []trace.SpanContext
	for _, r := range f.written {
		if r.span != nil {
			traced, contexts = append(traced, r), append(contexts, r.span.Context())
		}
	}
	commit := s.tracer.Record(contexts, f.began, "commit", attribute.Int("manifold.events", f.rows), attribute.Int("manifold.requests", len(f.written)))
	if commit == nil {
		return
	}
	for n, r := range traced {
		r.span.Note("written", f.began)
		if n > 0 {
			r.span.Link(commit.Context())
		}
	}
	if err == nil && !f.moved {
		commit.Fail("lost") // another writer has moved the head
	}
	commit.End(err)
}
