package cloudevents

import (
	"encoding/base64"
	"encoding/json"
	"mime"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/manifold-es/manifold/domain"
)

func invalid(where, format string, args ...any) error {
	return domain.Errorf(domain.CodeInvalidRequest, where, format, args...)
}

// set sets an attribute of the event. where names its place in the request. value is a string, a boolean or a number;
// set returns an error for any other JSON, and for a value that the attribute cannot have. A null leaves the attribute
// unset.
func (e *Event) set(where, name string, value json.RawMessage) error {
	field := e.field(name)
	if field == nil {
		return e.extend(where, name, value)
	}
	if string(value) == "null" {
		return nil
	}
	if value[0] != '"' {
		return invalid(where, "it must be a string")
	}
	given := text(value)
	if given == "" {
		return invalid(where, "it must not be empty")
	}
	if err := checkText(where, given); err != nil {
		return err
	}
	*field = given
	switch name {
	case "source":
		if _, err := url.Parse(given); err != nil {
			return invalid(where, "%q is not a URI reference such as https://example.com/orders", domain.Clip(given, 60))
		}
	case "type":
		return domain.CheckType(where, given)
	case "dataschema":
		if schema, err := url.Parse(given); err != nil || schema.Scheme == "" {
			return invalid(where, "%q is not a URI such as https://example.com/schemas/order", domain.Clip(given, 60))
		}
	case "datacontenttype":
		if name, _, err := mime.ParseMediaType(given); err != nil || !strings.Contains(name, "/") {
			return invalid(where, "%q is not a media type such as application/json", domain.Clip(given, 60))
		}
	case "time":
		at, err := time.Parse(time.RFC3339Nano, given)
		if err != nil {
			return invalid(where, "%q is not a time such as 2026-03-01T09:30:00Z", domain.Clip(given, 60))
		}
		if e.at = at.UTC().Truncate(time.Microsecond); e.at.Year() < 2 || e.at.Year() > 9999 {
			return invalid(where, "%q is out of range; times lie in the years 2 to 9999", domain.Clip(given, 60))
		}
	}
	return nil
}

// field returns the field of an attribute of the specification, or nil for an extension.
func (e *Event) field(name string) *string {
	switch name {
	case "id":
		return &e.ID
	case "source":
		return &e.Source
	case "type":
		return &e.Type
	case "subject":
		return &e.Subject
	case "time":
		return &e.Time
	case "datacontenttype":
		return &e.DataContentType
	case "dataschema":
		return &e.DataSchema
	}
	return nil
}

// extend adds an extension to the event. It skips those that describe the event's place in another log.
func (e *Event) extend(where, name string, value json.RawMessage) error {
	switch name {
	case ExtensionID:
		e.logID = given(value)
		return nil
	case ExtensionStream:
		e.stream = given(value)
		return nil
	case ExtensionErased:
		return nil // the fields stay null
	case ExtensionGap:
		if given(value) != "" {
			return invalid(where, "the event has no data, because it was %s in its original log; leave it out", domain.Clip(given(value), 60))
		}
		return nil
	case ExtensionTags:
		tags, err := domain.CheckTags(where, strings.Fields(given(value)))
		if e, ok := err.(*domain.Error); ok {
			e.Where = where
		}
		e.Tags = tags
		return err
	case ExtensionVersion, ExtensionPosition, ExtensionRecordedAt,
		ExtensionAttempt, ExtensionGroup, ExtensionMaxAttempts, ExtensionCursor, ExtensionAckDeadline, ExtensionPartition, ExtensionReplays, ExtensionRemovedTo,
		ExtensionAttempts, ExtensionReason, ExtensionFirstParked, ExtensionParkedAt, ExtensionReplayAt:
		return nil // of another log
	}
	if err := checkName(where, name); err != nil {
		return err
	}
	switch c := value[0]; {
	case string(value) == "null":
		return nil
	case c == '{' || c == '[':
		return invalid(where, "an attribute is a string, a whole number, true or false; put objects and arrays into data")
	case c == '"':
		if err := checkText(where, text(value)); err != nil {
			return err
		}
	case c != 't' && c != 'f' && !integer(value):
		return invalid(where, "a number must be a whole one from -2147483648 to 2147483647; send others as strings")
	}
	if name == ExtensionMetadata {
		if value[0] != '"' {
			return invalid(where, "it must be a string with JSON in it")
		}
		metadata := json.RawMessage(strings.TrimSpace(text(value)))
		if err := domain.CheckJSON(metadata); err != nil {
			return domain.Errorf(domain.CodeInvalidJSON, where, "%s", err)
		}
		if string(metadata) != "null" {
			e.Metadata = metadata
		}
		return nil
	}
	if len(e.Extensions) == maxExtensions {
		return domain.Errorf(domain.CodeTooLarge, where, "the event has more than %d extensions; put related values into data", maxExtensions)
	}
	e.Extensions = append(e.Extensions, Extension{Name: name, Value: value})
	return nil
}

// given returns the text of an attribute's value; empty for null.
func given(value json.RawMessage) string {
	if string(value) == "null" {
		return ""
	}
	return text(value)
}

// checkName returns an error unless name is a valid attribute name.
func checkName(where, name string) error {
	if name == "" || len(name) > maxNameBytes {
		return invalid(where, "an attribute's name has 1 to %d characters", maxNameBytes)
	}
	if name == "data" {
		return invalid(where, "data is no attribute")
	}
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return invalid(where, "%q is no attribute: their names have lower-case letters and digits only", domain.Clip(name, 60))
		}
	}
	return nil
}

const (
	// maxNameBytes limits the names of attributes. The specification recommends at most 20.
	maxNameBytes = 100
	// maxExtensions limits the number of an event's extensions.
	maxExtensions = 100
)

// checkText returns an error for characters that no attribute may contain.
func checkText(where, text string) error {
	if !utf8.ValidString(text) {
		return invalid(where, "it is not UTF-8")
	}
	for i, r := range text {
		if r < ' ' || 0x7f <= r && r <= 0x9f {
			return invalid(where, "it has the control character %U at byte %d, which no attribute may have", r, i+1)
		}
	}
	return nil
}

// complete returns an error if the event is too large or lacks a required attribute. place returns the place of an
// attribute. version is specversion as JSON, or nil.
func (e *Event) complete(place func(name string) string, version json.RawMessage) error {
	switch {
	case version == nil:
		return invalid(place("specversion"), "required, but missing: %q", SpecVersion)
	case version[0] != '"' || text(version) != SpecVersion:
		return domain.Errorf(domain.CodeUnsupported, place("specversion"), "unsupported version %s; it must be %q", domain.Clip(string(version), 60), SpecVersion)
	}
	for _, needed := range [...]string{"id", "source", "type"} {
		if *e.field(needed) == "" {
			return invalid(place(needed), "required, but missing")
		}
	}
	if size := len(e.data) + len(e.Metadata); size > domain.MaxEventBytes {
		return domain.Errorf(domain.CodeTooLarge, place("data"), "it has %d bytes as it is kept; an event has at most %d", size, domain.MaxEventBytes)
	}
	return nil
}

// checkBase64 returns an error unless the JSON value is a base64 string.
func checkBase64(where string, value json.RawMessage) error {
	if value[0] != '"' {
		return invalid(where, "it must be a string: the data's bytes as base64")
	}
	if _, err := base64.StdEncoding.Strict().DecodeString(text(value)); err != nil || strings.ContainsAny(text(value), "\r\n") {
		return invalid(where, "it is not base64 with the alphabet of RFC 4648, section 4, and its padding")
	}
	return nil
}

// plainTrace reports whether metadata can hold an attribute's value as traceparent: a string of printable ASCII.
func plainTrace(value json.RawMessage) bool {
	if len(value) < 3 || value[0] != '"' {
		return false
	}
	return !strings.ContainsFunc(text(value), func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
}
