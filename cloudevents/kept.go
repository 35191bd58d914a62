package cloudevents

import (
	"bytes"
	"encoding/json"

	"github.com/manifold-es/manifold/domain"
)

// keptMember is the metadata member that keeps what an event had as a CloudEvent. It is an object of its attributes
// without type and specversion, and without id and time if they equal the event's own. Its member data, which is not
// the name of an attribute, describes the data: "base64" if the event's data is bytes, "bytes" if it came as bytes and
// is JSON, and "none" if there was none.
const keptMember = "cloudevents"

// appendKept appends the object for keptMember. extensions are the extensions that are stored nowhere else.
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

// restore rebuilds the CloudEvent that appendKept stored as kept. ok is false if kept is not such an object: clients
// may put anything into metadata.
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
			return invalid(name, "it contradicts the attribute")
		}
		if e.has(name) {
			return invalid(name, "it is given twice")
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
		e.Time = domain.FormatTime(event.OccurredAt)
	}
	return e, true
}

// has reports whether the event already has an attribute.
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

// split splits metadata into the member that restore reads, traceparent if it is a plain string, and the rest. Each
// part is nil if absent.
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

// mayHold reports whether an object may have a member with a name. It is cheap, and may wrongly return true, but never
// false.
func mayHold(metadata json.RawMessage, name string) bool {
	return len(metadata) > 0 && metadata[0] == '{' && (bytes.Contains(metadata, []byte(name)) || bytes.IndexByte(metadata, '\\') >= 0)
}
