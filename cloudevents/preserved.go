package cloudevents

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// preservedMember is the metadata member that preserves what an event had as a CloudEvent. It is an object of its
// attributes without type and specversion, and without id and time if they equal the event's own. Its member data,
// which is not the name of an attribute, describes the data: "base64" if the event's data is bytes, "bytes" if it came
// as bytes and is JSON, and "none" if there was none.
const preservedMember = "cloudevents"

// appendMember appends the name of an object's next member.
func appendMember(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(append(append(b, '"'), name...), `":`...)
}

// appendPreserved appends the object for preservedMember. extensions are the extensions that are stored nowhere else.
func (e *Event) appendPreserved(b []byte, id domain.EventID, extensions []Extension) []byte {
	b = append(b, '{')
	preserve := func(name, value string) {
		if value != "" {
			b = domain.AppendText(appendMember(b, name), value)
		}
	}
	if e.ID != id.String() {
		preserve("id", e.ID)
	}
	preserve("source", e.Source)
	preserve("subject", e.Subject)
	if !sameTime(e.Time, e.at) {
		preserve("time", e.Time)
	}
	preserve("datacontenttype", e.DataContentType)
	preserve("dataschema", e.DataSchema)
	switch e.form {
	case binaryData:
		preserve("data", "base64")
	case jsonBytes:
		preserve("data", "bytes")
	case noData:
		preserve("data", "none")
	}
	for _, extension := range extensions {
		b = append(appendMember(b, extension.Name), extension.Value...)
	}
	return append(b, '}')
}

// restore rebuilds the CloudEvent from what appendPreserved stored. ok is false if preserved is not such an object:
// clients may put anything into metadata.
func restore(preserved json.RawMessage, event *domain.Event) (e Event, ok bool) {
	e.form, e.data = jsonData, event.Data
	scan := domain.NewStoredJSONScanner(preserved)
	err := scan.Object(func(name string) error {
		value, err := scan.Value()
		if err != nil {
			return err
		}
		switch name {
		case "type", "specversion", ExtensionMetadata, ExtensionTags:
			return invalid(name, "it is not stored here")
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
	return slices.ContainsFunc(e.Extensions, func(extension Extension) bool { return extension.Name == name }) ||
		name == ExtensionMetadata && e.Metadata != nil
}

// split splits metadata into the member that restore reads, traceparent if it is a plain string, and the rest. Each
// part is nil if absent.
func split(metadata json.RawMessage) (preserved, trace, rest json.RawMessage) {
	if !mayHold(metadata, preservedMember) && !mayHold(metadata, ExtensionTrace) {
		return nil, nil, metadata
	}
	scan := domain.NewStoredJSONScanner(metadata)
	err := scan.Object(func(name string) error {
		value, err := scan.Value()
		if err != nil {
			return err
		}
		switch {
		case name == preservedMember && value[0] == '{':
			preserved = value
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
	case err != nil, preserved == nil && trace == nil:
		return nil, nil, metadata
	case rest != nil:
		rest = append(rest, '}')
	}
	return preserved, trace, rest
}

// mayHold reports whether an object may have a member with a name. It is cheap, and may wrongly return true, but never
// wrongly false.
func mayHold(metadata json.RawMessage, name string) bool {
	return len(metadata) > 0 && metadata[0] == '{' && (bytes.Contains(metadata, []byte(name)) || bytes.IndexByte(metadata, '\\') >= 0)
}
