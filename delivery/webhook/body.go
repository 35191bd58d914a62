package webhook

import (
	"strconv"
	"time"

	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// standardType is the media type of the standard format.
const standardType = "application/json"

// The CloudEvents extensions that hold the event's document, or its documents if there are several, as JSON text.
const (
	extensionDocument  = "manifolddocument"
	extensionDocuments = "manifolddocuments"
)

// newMessage encodes an event in a format. documents are those that the event belongs to if the webhook's source is a
// projection, and otherwise nil.
func (w *Webhooks) newMessage(format Format, event *domain.Event, documents []projection.EventDocument) message {
	m := message{id: event.ID.String(), contentType: standardType, trace: tracing.Of(event.Metadata)}
	if format == FormatCloudEvents {
		m.contentType = cloudevents.StructuredType
		encoder := cloudevents.Encoder{DataSchema: w.config.DataSchema}
		m.body = encoder.Append(make([]byte, 0, 512+len(event.Data)+len(event.Metadata)), event)
		switch len(documents) {
		case 0:
			return m
		case 1:
			m.body = append(m.body[:len(m.body)-1], `,"`+extensionDocument+`":`...)
			m.body = domain.AppendText(m.body, string(appendDocument(nil, &documents[0], true)))
		default:
			m.body = append(m.body[:len(m.body)-1], `,"`+extensionDocuments+`":`...)
			m.body = domain.AppendText(m.body, string(appendDocuments(nil, documents)))
		}
		m.body = append(m.body, '}')
		return m
	}
	b := make([]byte, 0, 512+len(event.Data)+len(event.Metadata))
	b = domain.AppendText(append(b, `{"type":`...), event.Type)
	at := event.OccurredAt
	if at.IsZero() {
		at = event.RecordedAt
	}
	b = appendTime(b, "timestamp", at)
	b = appendEvent(append(b, `,"data":{"event":`...), event)
	switch len(documents) {
	case 0:
	case 1:
		b = appendDocument(append(b, `,"document":`...), &documents[0], true)
	default:
		b = appendDocuments(append(b, `,"documents":`...), documents)
	}
	m.body = append(b, "}}"...)
	return m
}

// appendEvent appends an event in the form of the API.
func appendEvent(b []byte, event *domain.Event) []byte {
	b = append(append(append(b, `{"id":"`...), event.ID.String()...), '"')
	b = domain.AppendText(append(b, `,"stream":`...), event.Stream)
	b = strconv.AppendInt(append(b, `,"version":`...), event.Version, 10)
	b = strconv.AppendInt(append(b, `,"position":`...), event.Position, 10)
	b = domain.AppendText(append(b, `,"type":`...), event.Type)
	b = append(append(b, `,"data":`...), event.Data...)
	if event.Metadata != nil {
		b = append(append(b, `,"metadata":`...), event.Metadata...)
	}
	if event.Gap != nil {
		b = event.Gap.Append(append(b, `,"gap":`...))
	}
	if event.Erased != nil {
		b = event.Erased.Append(append(b, `,"erased":`...))
	}
	if !event.OccurredAt.IsZero() {
		b = appendTime(b, "occurredAt", event.OccurredAt)
	}
	return append(appendTime(b, "recordedAt", event.RecordedAt), '}')
}

// appendDocuments appends an event's documents, the first ones with their data, as far as all of it together is no more
// than one document may have.
func appendDocuments(b []byte, documents []projection.EventDocument) []byte {
	b = append(b, '[')
	left := domain.MaxDocumentBytes
	for i := range documents {
		if i > 0 {
			b = append(b, ',')
		}
		if documents[i].Document != nil {
			left -= len(documents[i].Document.Data)
		}
		b = appendDocument(b, &documents[i], left >= 0)
	}
	return append(b, ']')
}

// appendDocument appends an event's document. data is null if there is no document, because the events created none or
// removed it; omitted replaces it if it is not included.
func appendDocument(b []byte, of *projection.EventDocument, include bool) []byte {
	b = domain.AppendText(append(b, `{"id":`...), of.ID)
	if of.Document == nil {
		return append(b, `,"data":null}`...)
	}
	b = strconv.AppendInt(append(b, `,"version":`...), of.Document.Version, 10)
	if !include {
		return append(b, `,"omitted":true}`...)
	}
	return append(append(append(b, `,"data":`...), of.Document.Data...), '}')
}

func appendTime(b []byte, name string, at time.Time) []byte {
	b = append(append(append(b, `,"`...), name...), `":"`...)
	return append(domain.AppendTime(b, at), '"')
}
