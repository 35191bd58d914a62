package cloudevents

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Event is a CloudEvent that came in, and was found to be one.
type Event struct {
	ID              string
	Source          string // a URI reference
	Type            string
	Subject         string // empty: none
	Time            string // RFC 3339, as it came; empty: none
	DataContentType string // a media type; empty: none, which means application/json
	DataSchema      string // a URI; empty: none
	Extensions      []Extension
	Metadata        json.RawMessage // ExtensionMetadata, where it came; any JSON value

	form   dataForm
	data   json.RawMessage // by form; JSON of any kind where form is jsonData
	at     time.Time       // Time, to the microsecond
	stream string          // ExtensionStream, as it came; empty: none
	logID  string          // ExtensionID, as it came; empty: none
}

// Extension is a context attribute that the specification does not have itself.
type Extension struct {
	Name  string          // lower-case letters and digits
	Value json.RawMessage // a string, true, false, or a whole number of 32 bits
}

// EventID is the id that the event has in the log: its own where that is a UUID, else one that follows from source and id,
// so that what is sent again is appended once.
func (e *Event) EventID() domain.EventID {
	if id, err := domain.ParseEventID(e.ID); err == nil && !id.IsZero() {
		return id
	}
	return domain.DeriveEventID("cloudevents", e.Source, e.ID)
}

// NewEvent is the event as it is appended to a stream: its type and data are the CloudEvent's, the metadata keeps what is
// neither there nor plain from the stream's name. An error names the attribute.
func (e *Event) NewEvent(stream string) (domain.NewEvent, error) {
	return e.newEvent(stream, e.EventID())
}

// Original is the event as it was in the log that it was exported from: its stream, and its id there. An event that says neither is
// published to its type, with its subject as the key, or, where it has none, to a stream of its own. An error names the attribute.
func (e *Event) Original() (stream string, event domain.NewEvent, err error) {
	id := e.EventID()
	if e.logID != "" {
		if id, err = domain.ParseEventID(e.logID); err != nil || id.IsZero() {
			return "", event, invalid(ExtensionID, "%q is not an event's id", clip(e.logID))
		}
	}
	if stream = e.stream; stream != "" {
		err = domain.CheckStream(ExtensionStream, stream)
	} else {
		stream, err = e.ownStream(id)
	}
	if err == nil {
		event, err = e.newEvent(stream, id)
	}
	return stream, event, err
}

// ownStream is the stream that type and subject name.
func (e *Event) ownStream(id domain.EventID) (string, error) {
	where, err := "type", domain.CheckCategory("type", e.Type)
	stream := e.Type + "-" + id.String()
	if err == nil && e.Subject != "" {
		where, stream = "subject", e.Type+"-"+e.Subject
		err = domain.CheckStream(where, stream)
	}
	if err, ok := err.(*domain.Error); ok {
		return "", invalid(where, "%s; it names the stream, since %s is not there", err.Message, ExtensionStream)
	}
	return stream, err
}

func (e *Event) newEvent(stream string, id domain.EventID) (domain.NewEvent, error) {
	event := domain.NewEvent{ID: id, Type: e.Type, Data: e.data, OccurredAt: e.at}
	var err error
	if event.Metadata, err = e.metadata(stream, event.ID); err != nil {
		return event, err
	}
	if size := len(event.Data) + len(event.Metadata); size > domain.MaxEventBytes {
		return event, domain.Errorf(domain.CodeTooLarge, "data", "data and attributes have %d bytes as they are kept; an event has at most %d", size, domain.MaxEventBytes)
	}
	return event, nil
}

// Message is the event as it is published under a topic, with a key or, where that is empty, to a stream of its own. Topic and
// key must be good: domain.CheckCategory, domain.CheckStream. An error names the attribute.
func (e *Event) Message(topic, key string) (domain.Message, error) {
	id := e.EventID()
	stream := topic + "-" + key
	if key == "" {
		stream += id.String()
	}
	event, err := e.NewEvent(stream)
	return domain.Message{
		Topic: topic, Key: key, ID: id, Type: event.Type, Payload: event.Data, Metadata: event.Metadata, OccurredAt: event.OccurredAt,
	}, err
}

// metadata is what the event's metadata must be for nothing to be lost.
func (e *Event) metadata(stream string, id domain.EventID) (json.RawMessage, error) {
	var trace string
	extensions := e.Extensions
	for i, extension := range extensions {
		if extension.Name == ExtensionTrace && plainTrace(extension.Value) {
			trace = `"` + text(extension.Value) + `"`
			extensions = append(append([]Extension{}, extensions[:i]...), extensions[i+1:]...)
			break
		}
	}
	kept := !e.plain(stream, id) || len(extensions) > 0
	if !kept && trace == "" {
		return e.Metadata, nil
	}
	b := []byte{'{'}
	member := func(name string) {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), name...), `":`...)
	}
	if e.Metadata != nil {
		if e.Metadata[0] != '{' {
			return nil, invalid(ExtensionMetadata, "it must be the text of a JSON object, since other attributes are kept beside it")
		}
		others, its, rest := split(e.Metadata)
		if rest != nil {
			b = append(b[:1], bytes.TrimSpace(rest[1:len(rest)-1])...)
		}
		if !kept && others != nil {
			member(keptMember)
			b = append(b, others...)
		}
		if trace == "" && its != nil {
			member(ExtensionTrace)
			b = append(b, its...)
		}
	}
	if trace != "" {
		member(ExtensionTrace)
		b = append(b, trace...)
	}
	if kept {
		member(keptMember)
		b = e.appendKept(b, id, extensions)
	}
	return append(b, '}'), nil
}

// plain says whether an event of the log that came in another way would go out just so, from this stream.
func (e *Event) plain(stream string, id domain.EventID) bool {
	return e.form == jsonData && e.DataContentType == jsonType && e.DataSchema == "" && e.ID == id.String() &&
		e.Subject == domain.Key(stream) && e.Source == sourceOf(stream) && e.Time != "" && sameTime(e.Time, e.at)
}

// sourceOf is the source of events that came in another way: the category, as a reference within the service.
func sourceOf(stream string) string { return "/categories/" + domain.Category(stream) }

func formatTime(at time.Time) string { return domain.FormatTime(at) }

// sameTime says whether a text says nothing more than the moment: it is in UTC, with or without trailing zeros.
func sameTime(text string, at time.Time) bool {
	return text == formatTime(at) || text == at.UTC().Format(time.RFC3339Nano)
}

// attributes calls attribute with the name and the value of each, but for the content type.
func (e *Event) attributes(attribute func(name, value string)) {
	attribute("specversion", SpecVersion)
	attribute("id", e.ID)
	attribute("source", e.Source)
	attribute("type", e.Type)
	for _, optional := range [...]struct{ name, value string }{{"subject", e.Subject}, {"time", e.Time}, {"dataschema", e.DataSchema}} {
		if optional.value != "" {
			attribute(optional.name, optional.value)
		}
	}
	for _, extension := range e.Extensions {
		attribute(extension.Name, text(extension.Value))
	}
}

// text is what a JSON string means, and any other scalar as it is written.
func text(raw json.RawMessage) string {
	if raw[0] != '"' {
		return string(raw)
	}
	for _, c := range raw {
		if c == '\\' {
			var text string
			_ = json.Unmarshal(raw, &text) // it was found to be JSON
			return text
		}
	}
	return string(raw[1 : len(raw)-1])
}

// integer says whether a JSON number is a whole one of 32 bits, which is what attributes may be.
func integer(raw json.RawMessage) bool {
	_, err := strconv.ParseInt(string(raw), 10, 32)
	return err == nil
}
