package cloudevents

import (
	"bytes"
	"encoding/json"

	"github.com/manifold-es/manifold/domain"
)

// keptMember is the member of metadata that keeps what an event brought as a CloudEvent: an object of its attributes, without
// type and specversion, and without id and time where the event's own say the same. Its member data, which is the name of no
// attribute, says "base64" where the event's data is bytes, "bytes" where it came as such and is JSON, and "none" where there was none.
const keptMember = "cloudevents"

// appendKept appends that object. extensions are those of the event that have no other place.
func (e *Event) appendKept(b []byte, id domain.EventID, extensions []Extension) []byte {
	b = append(b, '{')
	member := func(name string) {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), name...), `":`...)
	}
	keep := func(name, value string) {
		if value != "" {
			member(name)
			b = domain.AppendText(b, value)
		}
	}
	if e.ID != id.String() {
		keep("id", e.ID)
	}
	keep("source", e.Source)
	keep("subject", e.Subject)
	if !sameTime(e.Time, e.at) {
		keep("time", e.Time)
	}
	keep("datacontenttype", e.DataContentType)
	keep("dataschema", e.DataSchema)
	switch e.form {
	case binaryData:
		keep("data", "base64")
	case jsonBytes:
		keep("data", "bytes")
	case noData:
		keep("data", "none")
	}
	for _, extension := range extensions {
		member(extension.Name)
		b = append(b, extension.Value...)
	}
	return append(b, '}')
}

// restore makes the CloudEvent anew that kept was made of. ok is false where it was not: clients may put anything into metadata.
func restore(kept json.RawMessage, event *domain.Event) (e Event, ok bool) {
	e.form, e.data = jsonData, event.Data
	scan := domain.NewStoredJSONScanner(kept)
	err := scan.Object(func(name string) error {
		value, err := scan.Value()
		if err != nil {
			return err
		}
		switch name {
		case "type", "specversion", ExtensionMetadata:
			return invalid(name, "it is not kept here")
		case "data":
			switch string(value) {
			case `"base64"`:
				e.form = binaryData
				return checkBase64(name, e.data)
			case `"bytes"`:
				e.form = jsonBytes
				return nil
			case `"none"`:
				e.form = noData
				return nil
			}
			return invalid(name, "it says something else")
		}
		if e.has(name) {
			return invalid(name, "it is there twice")
		}
		return e.set(name, name, value)
	})
	if err != nil || e.Source == "" {
		return Event{}, false
	}
	e.Type = event.Type
	if e.ID == "" {
		e.ID = event.ID.String()
	}
	if e.Time == "" && !event.OccurredAt.IsZero() {
		e.Time = formatTime(event.OccurredAt)
	}
	return e, true
}

// has says whether the event has an attribute already.
func (e *Event) has(name string) bool {
	if field := e.field(name); field != nil {
		return *field != ""
	}
	for i := range e.Extensions {
		if e.Extensions[i].Name == name {
			return true
		}
	}
	return name == ExtensionMetadata && e.Metadata != nil
}

// split takes metadata apart: the member that restore reads, traceparent where it is a plain string, and the rest; each is nil
// where there is none.
func split(metadata json.RawMessage) (kept, trace, rest json.RawMessage) {
	if !mayHold(metadata, keptMember) && !mayHold(metadata, ExtensionTrace) {
		return nil, nil, metadata
	}
	scan := domain.NewStoredJSONScanner(metadata)
	err := scan.Object(func(name string) error {
		value, err := scan.Value()
		if err != nil {
			return err
		}
		switch {
		case name == keptMember && value[0] == '{':
			kept = value
			return nil
		case name == ExtensionTrace && plainTrace(value):
			trace = domain.AppendText(nil, text(value))
			return nil
		}
		if rest == nil {
			rest = append(make(json.RawMessage, 0, len(metadata)), '{')
		} else {
			rest = append(rest, ',')
		}
		rest = append(append(domain.AppendText(rest, name), ':'), value...)
		return nil
	})
	switch {
	case err != nil, kept == nil && trace == nil:
		return nil, nil, metadata
	case rest != nil:
		rest = append(rest, '}')
	}
	return kept, trace, rest
}

// mayHold says whether an object may have a member of a name: it is cheap, and wrong only where it says yes.
func mayHold(metadata json.RawMessage, name string) bool {
	return len(metadata) > 0 && metadata[0] == '{' && (bytes.Contains(metadata, []byte(name)) || bytes.IndexByte(metadata, '\\') >= 0)
}
