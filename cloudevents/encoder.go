package cloudevents

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Encoder writes events of the log as CloudEvents. The zero value is ready to use. It is for one goroutine.
type Encoder struct {
	// DataSchema returns the dataschema of an event that came without one, a URI; empty: none. It is not called for
	// events whose data is missing, or is not what the log keeps as data. Nil: there is none.
	DataSchema func(event *domain.Event) string

	recordedAt time.Time // shared by the events of one commit
	recorded   []byte
}

// Append appends an event as a structured CloudEvent: a JSON object on one line.
func (e *Encoder) Append(b []byte, event *domain.Event) []byte {
	preserved, trace, rest := split(event.Metadata)
	if preserved != nil {
		if original, ok := restore(preserved, event); ok {
			e.addDataSchema(&original, event)
			return e.appendPlace(original.append(b), event, original.has(ExtensionTrace), trace, rest)
		}
		trace, rest = nil, event.Metadata
	}
	b = append(b, `{"specversion":"1.0","id":"`...)
	b = event.ID.Append(b)
	b = append(b, `","source":"/categories/`...)
	b = append(b, domain.Category(event.Stream)...)
	b = append(b, `","type":"`...)
	b = append(b, event.Type...)
	b = append(b, `","subject":"`...)
	b = append(b, domain.Key(event.Stream)...)
	b = append(b, `","time":"`...)
	at := event.OccurredAt
	if at.IsZero() {
		at = event.RecordedAt
	}
	b = domain.AppendTime(b, at)
	b = append(b, `","datacontenttype":"application/json"`...)
	if uri := e.dataSchema(event); uri != "" {
		b = domain.AppendText(append(b, `,"dataschema":`...), uri)
	}
	b = append(b, `,"data":`...)
	return e.appendPlace(append(b, event.Data...), event, false, trace, rest)
}

// dataSchema returns the dataschema of an event that is about to go out without one; empty: none.
func (e *Encoder) dataSchema(event *domain.Event) string {
	if e.DataSchema == nil || event.Gap != nil {
		return ""
	}
	return e.DataSchema(event)
}

// addDataSchema adds the dataschema to an event that came as a CloudEvent without one.
func (e *Encoder) addDataSchema(original *Event, event *domain.Event) {
	if original.DataSchema == "" && (original.form == jsonData || original.form == jsonBytes) {
		original.DataSchema = e.dataSchema(event)
	}
}

// appendPlace appends Manifold's own extensions, and closes the object.
func (e *Encoder) appendPlace(b []byte, event *domain.Event, traced bool, trace, rest json.RawMessage) []byte {
	b = append(b, `,"`+ExtensionID+`":"`...)
	b = event.ID.Append(b)
	b = append(b, `","`+ExtensionStream+`":"`...)
	b = append(b, event.Stream...)
	b = append(b, `","`+ExtensionVersion+`":"`...)
	b = strconv.AppendInt(b, event.Version, 10)
	b = append(b, `","`+ExtensionPosition+`":"`...)
	b = strconv.AppendInt(b, event.Position, 10)
	b = append(b, `","`+ExtensionRecordedAt+`":"`...)
	if e.recorded == nil || !event.RecordedAt.Equal(e.recordedAt) {
		e.recordedAt = event.RecordedAt
		e.recorded = domain.AppendTime(e.recorded[:0], event.RecordedAt)
	}
	b = append(append(b, e.recorded...), '"')
	if event.Tags != nil {
		b = append(b, `,"`+ExtensionTags+`":"`...)
		for i, tag := range event.Tags {
			if i > 0 {
				b = append(b, ' ')
			}
			b = append(b, tag...)
		}
		b = append(b, '"')
	}
	if event.Gap != nil {
		b = domain.AppendText(append(b, `,"`+ExtensionGap+`":`...), string(event.Gap.Reason))
	}
	if event.Erased != nil {
		b = append(append(append(b, `,"`+ExtensionErased+`":"`...), event.Erased.Erasure.String()...), '"')
	}
	if trace != nil && !traced {
		b = append(append(b, `,"`+ExtensionTrace+`":`...), trace...)
	}
	if rest != nil {
		b = append(b, `,"`+ExtensionMetadata+`":`...)
		b = domain.AppendText(b, escapeControls(rest))
	}
	return append(b, '}')
}

// append appends the event as it was received, and leaves the object open.
func (e *Event) append(b []byte) []byte {
	b = append(b, `{"specversion":"1.0","id":`...)
	b = domain.AppendText(b, e.ID)
	b = append(b, `,"source":`...)
	b = domain.AppendText(b, e.Source)
	b = append(b, `,"type":`...)
	b = domain.AppendText(b, e.Type)
	for _, optional := range [...]struct{ name, value string }{
		{`,"subject":`, e.Subject}, {`,"time":`, e.Time}, {`,"datacontenttype":`, e.DataContentType}, {`,"dataschema":`, e.DataSchema},
	} {
		if optional.value != "" {
			b = domain.AppendText(append(b, optional.name...), optional.value)
		}
	}
	for _, extension := range e.Extensions {
		b = append(append(append(append(b, `,"`...), extension.Name...), `":`...), extension.Value...)
	}
	switch e.form {
	case jsonData:
		b = append(append(b, `,"data":`...), e.data...)
	case binaryData:
		b = append(append(b, `,"data_base64":`...), e.data...)
	case jsonBytes:
		b = append(base64.StdEncoding.AppendEncode(append(b, `,"data_base64":"`...), e.data), '"')
	}
	return b
}

// Binary splits an event of the log for the binary form of any protocol. It calls attribute with the name and the plain
// value of each context attribute. A protocol that restricts its headers must encode the values (HeaderValue). Binary
// returns the data's media type separately; it is empty if the event has neither data nor a type. The caller must not
// modify data.
func (e *Encoder) Binary(event *domain.Event, attribute func(name, value string)) (contentType string, data []byte) {
	preserved, trace, rest := split(event.Metadata)
	original, ok := Event{}, false
	if preserved != nil {
		if original, ok = restore(preserved, event); !ok {
			trace, rest = nil, event.Metadata
		}
	}
	if !ok {
		at := event.OccurredAt
		if at.IsZero() {
			at = event.RecordedAt
		}
		original = Event{
			ID: event.ID.String(), Source: sourceOf(event.Stream), Type: event.Type, Subject: domain.Key(event.Stream),
			Time: domain.FormatTime(at), DataContentType: jsonType, data: event.Data,
		}
	}
	e.addDataSchema(&original, event)
	original.attributes(attribute)
	attribute(ExtensionID, event.ID.String())
	attribute(ExtensionStream, event.Stream)
	attribute(ExtensionVersion, strconv.FormatInt(event.Version, 10))
	attribute(ExtensionPosition, strconv.FormatInt(event.Position, 10))
	attribute(ExtensionRecordedAt, domain.FormatTime(event.RecordedAt))
	if event.Tags != nil {
		attribute(ExtensionTags, strings.Join(event.Tags, " "))
	}
	if event.Gap != nil {
		attribute(ExtensionGap, string(event.Gap.Reason))
	}
	if event.Erased != nil {
		attribute(ExtensionErased, event.Erased.Erasure.String())
	}
	if trace != nil && !original.has(ExtensionTrace) {
		attribute(ExtensionTrace, text(trace))
	}
	if rest != nil {
		attribute(ExtensionMetadata, string(escapeControls(rest)))
	}
	return original.bytes()
}

// SetHeader sets the HTTP headers of the binary form (ce-id and the others, and Content-Type) and returns the body.
func (e *Encoder) SetHeader(header http.Header, event *domain.Event) (body []byte) {
	contentType, body := e.Binary(event, func(name, value string) {
		header.Set("ce-"+name, HeaderValue(value))
	})
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	return body
}

// HeaderValue encodes an attribute's value for a header of HTTP or NATS. It percent-encodes blanks, quotes, percent
// signs and non-ASCII characters.
func HeaderValue(value string) string {
	if !slices.ContainsFunc([]byte(value), isEncoded) {
		return value
	}
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, len(value)+16)
	for i := range len(value) {
		if c := value[i]; isEncoded(c) {
			b = append(b, '%', digits[c>>4], digits[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// isEncoded reports whether a byte of a header's value is percent-encoded.
func isEncoded(c byte) bool { return c <= ' ' || c > '~' || c == '"' || c == '%' }

// escapeControls escapes control characters that JSON strings may contain and attributes may not.
func escapeControls(text []byte) []byte {
	for i := 0; i < len(text); i++ {
		if control(text, i) {
			b := append(make([]byte, 0, len(text)+16), text[:i]...)
			for ; i < len(text); i++ {
				if !control(text, i) {
					b = append(b, text[i])
					continue
				}
				c := text[i]
				if c >= 0x80 {
					i++
					c = text[i] // the second byte of U+0080 to U+009F
				}
				b = fmt.Appendf(b, `\u%04x`, c)
			}
			return b
		}
	}
	return text
}

// control reports whether a control character that JSON allows in a string begins at i.
func control(text []byte, i int) bool {
	return text[i] == 0x7f || text[i] == 0xc2 && i+1 < len(text) && text[i+1] < 0xa0
}

// AppendGap appends a structured CloudEvent that reports a gap in the log to a follower. Its type is "manifold.gap",
// and data says what is missing. It is not an event of the log.
func AppendGap(b []byte, from, to int64, data []byte) []byte {
	b = append(b, `{"specversion":"1.0","id":"gap-`...)
	b = append(strconv.AppendInt(b, from, 10), '-')
	b = strconv.AppendInt(b, to, 10)
	b = append(b, `","source":"/v1/subscribe","type":"manifold.gap","datacontenttype":"application/json","data":`...)
	return append(append(b, data...), '}')
}

// AppendPlace appends a structured CloudEvent that reports a follower's position. Its type is "manifold." and the kind,
// such as checkpoint, and its only extension is the position. It is not an event of the log.
func AppendPlace(b []byte, kind string, position int64) []byte {
	b = append(append(append(b, `{"specversion":"1.0","id":"`...), kind...), '-')
	b = strconv.AppendInt(b, position, 10)
	b = append(append(append(b, `","source":"/v1/subscribe","type":"manifold.`...), kind...), `","`+ExtensionPosition+`":"`...)
	b = strconv.AppendInt(b, position, 10)
	return append(b, `"}`...)
}
