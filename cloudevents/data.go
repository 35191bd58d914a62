package cloudevents

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/manifold-es/manifold/domain"
)

// dataForm says how the stored JSON value represents the CloudEvent's data.
type dataForm int

const (
	jsonData   dataForm = iota // the data itself; or its text as a string, if the content type is not JSON
	binaryData                 // a string: the data's bytes as base64
	jsonBytes                  // JSON that came and goes out as bytes: some readers do not recognize its type as JSON
	noData                     // null: there is no data
)

// jsonType is the media type of data without a content type.
const jsonType = "application/json"

// empty returns an event without attributes and data.
func empty() Event { return Event{form: noData, data: json.RawMessage("null")} }

// setBytes sets data that came as bytes. It stores JSON as JSON, and text as text, so that projections and filters can
// read it, and everything else as base64. Data is JSON if its media type says so, or if it has no media type and is
// valid JSON.
func (e *Event) setBytes(body []byte) {
	kind := e.DataContentType
	switch plain := unicode(kind); {
	case (kind == "" || plain && isJSON(kind)) && domain.CheckJSON(body) == nil:
		e.form, e.data = jsonData, bytes.Trim(body, " \t\r\n")
		if _, subtype := mediaType(kind); kind != "" && subtype != "json" {
			e.form = jsonBytes
		}
	case plain && isText(kind) && utf8.Valid(body) && bytes.IndexByte(body, 0) < 0:
		e.form, e.data = jsonData, domain.AppendText(nil, body)
	default:
		e.form, e.data = binaryData, append(base64.StdEncoding.AppendEncode([]byte{'"'}, body), '"')
	}
}

// bytes returns the data as a body has it, and its media type. Both are empty if there is no data and no type.
func (e *Event) bytes() (contentType string, data []byte) {
	contentType = e.DataContentType
	switch {
	case e.form == noData:
		return contentType, nil
	case e.form == binaryData:
		data, _ = base64.StdEncoding.DecodeString(text(e.data)) // setBytes or checkBase64 has validated it
		return contentType, data
	case contentType == "":
		return jsonType, e.data
	case !isJSON(contentType) && e.data[0] == '"':
		return contentType, []byte(text(e.data))
	}
	return contentType, e.data
}

// isJSON reports whether data of a media type is JSON.
func isJSON(contentType string) bool {
	_, subtype := mediaType(contentType)
	return subtype == "json" || strings.HasSuffix(subtype, "+json")
}

// isText reports whether data of a media type is text other than JSON.
func isText(contentType string) bool {
	kind, subtype := mediaType(contentType)
	switch subtype {
	case "json":
		return false
	case "xml", "yaml", "x-yaml", "javascript", "x-www-form-urlencoded", "graphql", "sql":
		return true
	}
	return kind == "text" || strings.HasSuffix(subtype, "+xml") || strings.HasSuffix(subtype, "+yaml")
}

func mediaType(contentType string) (kind, subtype string) {
	name, _, _ := strings.Cut(contentType, ";")
	kind, subtype, _ = strings.Cut(strings.ToLower(strings.TrimSpace(name)), "/")
	return kind, subtype
}

// unicode reports whether text of a media type is UTF-8, as far as the type says.
func unicode(contentType string) bool {
	_, parameters, err := mime.ParseMediaType(contentType)
	charset := strings.ToLower(parameters["charset"])
	return err == nil && (charset == "" || charset == "utf-8" || charset == "us-ascii")
}
