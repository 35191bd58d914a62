package cloudevents

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Event is a valid incoming CloudEvent.
type Event struct {
	ID              string
	Source          string // a URI reference
	Type            string
	Subject         string // optional
	Time            string // RFC 3339, as received; optional
	DataContentType string // a media type; empty means application/json
	DataSchema      string // a URI; optional
	Extensions      []Extension
	Metadata        json.RawMessage // ExtensionMetadata, if present; any JSON value
	Tags            []string        // ExtensionTags, as domain.CheckTags returns them

	form   dataForm
	data   json.RawMessage // depends on form; any JSON if form is jsonData
	at     time.Time       // Time, to the microsecond
	stream string          // ExtensionStream, as received; optional
	logID  string          // ExtensionID, as received; optional
}

// Extension is a context attribute that the specification does not define.
type Extension struct {
	Name  string          // lower-case letters and digits
	Value json.RawMessage // a string, a boolean, or a 32-bit integer
}

// EventID returns the event's id in the log: its own if that is a UUID, otherwise one derived from source and id. An
// event that is sent again is therefore appended only once.
func (e *Event) EventID() domain.EventID {
	if id, err := domain.ParseEventID(e.ID); err == nil && !id.IsZero() {
		return id
	}
	return domain.DeriveEventID("cloudevents", e.Source, e.ID)
}

// NewEvent returns the event to append to a stream, with the CloudEvent's type and data. The metadata keeps what
// follows neither from these nor from the stream's name. An error names the attribute.
func (e *Event) NewEvent(stream string) (domain.NewEvent, error) {
	return e.newEvent(stream, e.EventID())
}

// Original returns the event as it was in the log that exported it, with its stream and its id there. For an event
// without these, the stream consists of its type and its subject or, without a subject, its type and its id. An error
// names the attribute.
func (e *Event) Original() (stream string, event domain.NewEvent, err error) {
	id := e.EventID()
	if e.logID != "" {
		if id, err = domain.ParseEventID(e.logID); err != nil || id.IsZero() {
			return "", event, invalid(ExtensionID, "%q is not an event's id", domain.Clip(e.logID, 60))
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

// ownStream returns the stream that type and subject name.
func (e *Event) ownStream(id domain.EventID) (string, error) {
	where, err := "type", domain.CheckCategory("type", e.Type)
	stream := e.Type + "-" + id.String()
	if err == nil && e.Subject != "" {
		where, stream = "subject", e.Type+"-"+e.Subject
		err = domain.CheckStream(where, stream)
	}
	if err, ok := err.(*domain.Error); ok {
		return "", invalid(where, "%s; it names the stream, because %s is missing", err.Message, ExtensionStream)
	}
	return stream, err
}

func (e *Event) newEvent(stream string, id domain.EventID) (domain.NewEvent, error) {
	event := domain.NewEvent{ID: id, Type: e.Type, Data: e.data, Tags: e.Tags, OccurredAt: e.at}
	var err error
	if event.Metadata, err = e.metadata(stream, event.ID); err != nil {
		return event, err
	}
	if size := len(event.Data) + len(event.Metadata); size > domain.MaxEventBytes {
		return event, domain.Errorf(domain.CodeTooLarge, "data", "data and attributes have %d bytes as they are kept; an event has at most %d", size, domain.MaxEventBytes)
	}
	return event, nil
}

// Message returns the event for publication under a topic and a key. Without a key, its stream consists of the topic
// and its id. The caller must have checked topic and key with domain.CheckCategory and domain.CheckStream. An error
// names the attribute.
func (e *Event) Message(topic, key string) (domain.Message, error) {
	id := e.EventID()
	stream := topic + "-" + key
	if key == "" {
		stream += id.String()
	}
	event, err := e.NewEvent(stream)
	return domain.Message{
		Topic: topic, Key: key, ID: id, Type: event.Type, Payload: event.Data, Metadata: event.Metadata, Tags: event.Tags, OccurredAt: event.OccurredAt,
	}, err
}

// metadata returns the metadata that the event needs for a lossless conversion.
func (e *Event) metadata(stream string, id domain.EventID) (json.RawMessage, error) {
	var trace string
	extensions := e.Extensions
	for i, extension := range extensions {
		if extension.Name == ExtensionTrace && plainTrace(extension.Value) {
			trace = `"` + text(extension.Value) + `"`
			extensions = slices.Delete(slices.Clone(extensions), i, i+1)
			break
		}
	}
	preserves := !e.plain(stream, id) || len(extensions) > 0
	if !preserves && trace == "" {
		return e.Metadata, nil
	}
	b := []byte{'{'}
	if e.Metadata != nil {
		if e.Metadata[0] != '{' {
			return nil, invalid(ExtensionMetadata, "it must be the text of a JSON object, since other attributes are kept beside it")
		}
		otherPreserved, otherTrace, rest := split(e.Metadata)
		if rest != nil {
			b = append(b[:1], bytes.TrimSpace(rest[1:len(rest)-1])...)
		}
		if !preserves && otherPreserved != nil {
			b = append(appendMember(b, preservedMember), otherPreserved...)
		}
		if trace == "" && otherTrace != nil {
			b = append(appendMember(b, ExtensionTrace), otherTrace...)
		}
	}
	if trace != "" {
		b = append(appendMember(b, ExtensionTrace), trace...)
	}
	if preserves {
		b = e.appendPreserved(appendMember(b, preservedMember), id, extensions)
	}
	return append(b, '}'), nil
}

// plain reports whether an ordinary event of the log, from this stream, would go out with the same attributes.
func (e *Event) plain(stream string, id domain.EventID) bool {
	return e.form == jsonData && e.DataContentType == jsonType && e.DataSchema == "" && e.ID == id.String() &&
		e.Subject == domain.Key(stream) && e.Source == sourceOf(stream) && e.Time != "" && sameTime(e.Time, e.at)
}

// sourceOf returns the source of ordinary events: the category, as a reference within the service.
func sourceOf(stream string) string { return "/categories/" + domain.Category(stream) }

// sameTime reports whether a text is just the moment: in UTC, with or without trailing zeros.
func sameTime(text string, at time.Time) bool {
	return text == domain.FormatTime(at) || text == at.UTC().Format(time.RFC3339Nano)
}

// attributes calls attribute with the name and the value of each attribute except the content type.
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

// text returns the value of a JSON string, and the literal text of any other scalar.
func text(raw json.RawMessage) string {
	if raw[0] != '"' {
		return string(raw)
	}
	return domain.UnquoteJSON(raw)
}

// integer reports whether a JSON number is a 32-bit integer, as attributes must be.
func integer(raw json.RawMessage) bool {
	_, err := strconv.ParseInt(string(raw), 10, 32)
	return err == nil
}
