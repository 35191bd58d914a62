package cloudevents

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/manifold-es/manifold/domain"
)

// IsBinary reports whether the headers of a request are in the binary form: at least one header is present that every
// such event has.
func IsBinary(header http.Header) bool {
	return header["Ce-Specversion"] != nil || header["Ce-Id"] != nil || header["Ce-Type"] != nil || header["Ce-Source"] != nil
}

// ParseBinary reads a CloudEvent in the binary form: attributes in headers, and the data as the body. An error is a
// *domain.Error that names the header.
func ParseBinary(header http.Header, body []byte) (Event, error) {
	event := empty()
	var version json.RawMessage
	var names []string
	for name := range header {
		if len(name) > len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names) // the same request gives the same error and the same order
	for _, field := range names {
		name := strings.ToLower(field[len(prefix):])
		where := prefix + domain.Clip(name, 60)
		values := header[field]
		if len(values) != 1 {
			return event, invalid(where, "it is given %d times; give it once", len(values))
		}
		value, err := attributeOf(where, values[0])
		if err != nil {
			return event, err
		}
		switch name {
		case "specversion":
			version = value
		case "datacontenttype":
			return event, invalid(where, "send the data's media type in Content-Type")
		default:
			if err := event.set(where, name, value); err != nil {
				return event, err
			}
		}
	}
	if err := event.setBody(header["Content-Type"], body); err != nil {
		return event, err
	}
	return event, event.complete(func(name string) string {
		if name == "data" {
			return "body"
		}
		return prefix + name
	}, version)
}

// prefix starts the names of attribute headers.
const prefix = "ce-"

// attributeOf decodes the value of a header, which may be quoted and percent-encoded.
func attributeOf(where, value string) (json.RawMessage, error) {
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		value = unquote(value[1 : len(value)-1])
	}
	value = percentDecoded(value)
	if !utf8.ValidString(value) {
		return nil, invalid(where, "it is not UTF-8, percent-encoded")
	}
	return domain.AppendText(nil, value), nil
}

// unquote resolves the escapes of a quoted string (RFC 9110, section 5.6.4).
func unquote(text string) string {
	if strings.IndexByte(text, '\\') < 0 {
		return text
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) {
			i++
		}
		b = append(b, text[i])
	}
	return string(b)
}

// percentDecoded decodes percent-encoding. A percent sign outside of an escape stays as it is.
func percentDecoded(text string) string {
	if strings.IndexByte(text, '%') < 0 {
		return text
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			if c, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
				b = append(b, byte(c))
				i += 2
				continue
			}
		}
		b = append(b, text[i])
	}
	return string(b)
}

// setBody sets the event's data from a body and its media types.
func (e *Event) setBody(types []string, body []byte) error {
	if len(types) > 1 {
		return invalid("Content-Type", "it is given %d times; give it once", len(types))
	}
	if len(types) == 1 && types[0] != "" {
		if err := e.set("Content-Type", "datacontenttype", domain.AppendText(nil, types[0])); err != nil {
			return err
		}
	}
	if len(body) == 0 {
		return nil
	}
	e.setBytes(body)
	if e.form == binaryData && isJSON(e.DataContentType) && unicode(e.DataContentType) {
		return domain.Errorf(domain.CodeInvalidJSON, "body", "%s; its Content-Type says JSON", domain.CheckJSON(body))
	}
	return nil
}
