package wire

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/manifold-es/manifold/domain"
)

// Traceparent returns the header's value if it is valid according to W3C Trace Context: version, trace, parent and
// flags, in lower-case hexadecimal digits, with neither trace nor parent zero. It ignores an invalid value, as that
// specification requires: a broken trace must not break the traced request.
func Traceparent(header http.Header) string {
	values := header["Traceparent"]
	if len(values) != 1 || len(values[0]) != 55 {
		return ""
	}
	text := values[0]
	zero := true // the number being read
	for i := range len(text) {
		switch c := text[i]; {
		case i == 2 || i == 35 || i == 52:
			if c != '-' || zero && i > 2 {
				return ""
			}
			zero = true
		case '0' <= c && c <= '9' || 'a' <= c && c <= 'f':
			zero = zero && c == '0'
		default:
			return ""
		}
	}
	if text[:2] == "ff" {
		return ""
	}
	return text
}

// KeepTrace adds the request's traceparent to the metadata of its events, so that their effects can be traced back. It
// does not change metadata that is not an object or already has a traceparent. It neither changes nor decodes the other
// bytes.
func KeepTrace(header http.Header, request domain.Append) {
	trace := Traceparent(header)
	if trace == "" {
		return
	}
	alone := aloneInMetadata(trace)
	for _, stream := range request.Streams {
		for i := range stream.Events {
			event := &stream.Events[i]
			if len(event.Data)+len(event.Metadata)+len(alone) <= domain.MaxEventBytes { // otherwise an import would refuse it
				event.Metadata = withTrace(event.Metadata, alone)
			}
		}
	}
}

// WithTrace returns metadata with the request's traceparent, as KeepTrace does.
func WithTrace(header http.Header, metadata json.RawMessage) json.RawMessage {
	if trace := Traceparent(header); trace != "" {
		return withTrace(metadata, aloneInMetadata(trace))
	}
	return metadata
}

func aloneInMetadata(trace string) json.RawMessage {
	return json.RawMessage(`{"traceparent":"` + trace + `"}`)
}

func withTrace(metadata, alone json.RawMessage) json.RawMessage {
	switch {
	case metadata == nil:
		return alone
	case metadata[0] == '{' && !hasTraceparent(metadata):
		return join(metadata, alone)
	}
	return metadata
}

// hasTraceparent reports whether an object, known to be valid, has a member of that name.
func hasTraceparent(object json.RawMessage) bool {
	if !bytes.Contains(object, []byte("traceparent")) && bytes.IndexByte(object, '\\') < 0 {
		return false // not with an escaped spelling either
	}
	has := false
	scan := domain.NewJSONScanner(object)
	err := scan.Object(func(name string) error {
		has = has || name == "traceparent"
		_, err := scan.Value()
		return err
	})
	return has || err != nil
}

// join returns an object with the members of both.
func join(object, other json.RawMessage) json.RawMessage {
	members := bytes.TrimSpace(object[1 : len(object)-1])
	if len(members) == 0 {
		return other
	}
	joined := make(json.RawMessage, 0, len(members)+1+len(other))
	joined = append(append(joined, '{'), members...)
	return append(append(joined, ','), other[1:]...)
}
