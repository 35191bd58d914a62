package wire

import (
	"mime"
	"net/http"
	"strings"

	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

// Ndjson is the media type of lines of JSON.
const Ndjson = "application/x-ndjson"

// EventForm is the form of the events in an answer.
type EventForm struct {
	Kind        string // the answer's media type
	Lines       bool   // one event per line, without a limit; otherwise a page of events
	Open, Close string // the text around the events of a page
	Encode      func(e *EventEncoder, b []byte, event *domain.Event) []byte
}

// FormOf returns the form that a request's Accept asks for. It is the only place that reads Accept for events.
func FormOf(request *http.Request) EventForm {
	lines, structured, batch := Accepts(request, Ndjson), Accepts(request, cloudevents.StructuredType), Accepts(request, cloudevents.BatchType)
	switch {
	case structured, lines && batch:
		return EventForm{Kind: Ndjson, Lines: true, Encode: (*EventEncoder).CloudEvent}
	case lines:
		return EventForm{Kind: Ndjson, Lines: true, Encode: (*EventEncoder).Event}
	case batch:
		return EventForm{Kind: cloudevents.BatchType, Open: "[", Close: "]\n", Encode: (*EventEncoder).CloudEvent}
	}
	return EventForm{Kind: "application/json", Open: `{"events":[`, Close: "]}\n", Encode: (*EventEncoder).Event}
}

// ExportForm returns the form that a request for an export asks for, which is always lines.
func ExportForm(request *http.Request) EventForm {
	form := EventForm{Kind: Ndjson, Lines: true, Encode: (*EventEncoder).line}
	if Accepts(request, cloudevents.StructuredType) || Accepts(request, cloudevents.BatchType) {
		form.Encode = (*EventEncoder).CloudEvent
	}
	return form
}

// Accepts reports whether a request's Accept names a media type.
func Accepts(request *http.Request, kind string) bool {
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

// RequireContentType refuses a body whose type is none of types.
func RequireContentType(request *http.Request, types ...string) error {
	given := request.Header.Get("Content-Type")
	if given == types[0] {
		return nil
	}
	parsed, parameters, err := mime.ParseMediaType(given)
	if err == nil {
		for _, want := range types {
			charset := strings.ToLower(parameters["charset"])
			if parsed == want && (charset == "" || charset == "utf-8") {
				return nil
			}
		}
	}
	return domain.Errorf(problem.CodeUnsupportedMediaType, "Content-Type", "unsupported media type %q; it must be %s, in UTF-8", domain.Clip(given, 60), strings.Join(types, " or "))
}
