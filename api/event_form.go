package api

import (
	"net/http"
	"strings"

	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

// eventForm is the form of the events in an answer.
type eventForm struct {
	kind        string // the answer's media type
	lines       bool   // one event per line, without a limit; otherwise a page of events
	open, close string // the text around the events of a page
	encode      func(e *eventEncoder, b []byte, event *domain.Event) []byte
}

// formOf returns the form that a request's Accept asks for. It is the only place that reads Accept for events.
func formOf(request *http.Request) eventForm {
	lines, structured, batch := accepts(request, ndjson), accepts(request, cloudevents.StructuredType), accepts(request, cloudevents.BatchType)
	switch {
	case structured, lines && batch:
		return eventForm{kind: ndjson, lines: true, encode: (*eventEncoder).cloudEvent}
	case lines:
		return eventForm{kind: ndjson, lines: true, encode: (*eventEncoder).event}
	case batch:
		return eventForm{kind: cloudevents.BatchType, open: "[", close: "]\n", encode: (*eventEncoder).cloudEvent}
	}
	return eventForm{kind: "application/json", open: `{"events":[`, close: "]}\n", encode: (*eventEncoder).event}
}

// exportForm returns the form that a request for an export asks for, which is always lines.
func exportForm(request *http.Request) eventForm {
	form := eventForm{kind: ndjson, lines: true, encode: (*eventEncoder).line}
	if accepts(request, cloudevents.StructuredType) || accepts(request, cloudevents.BatchType) {
		form.encode = (*eventEncoder).cloudEvent
	}
	return form
}

// accepts reports whether a request's Accept names a media type.
func accepts(request *http.Request, kind string) bool {
	for _, header := range request.Header.Values("Accept") {
		for item := range strings.SplitSeq(header, ",") {
			name, _, _ := strings.Cut(item, ";")
			if strings.EqualFold(strings.TrimSpace(name), kind) {
				return true
			}
		}
	}
	return false
}
