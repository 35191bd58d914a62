package domain

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// MaxDocumentBytes bounds a document's data as JSON text, in every database alike: it is what the smallest of them keeps.
const MaxDocumentBytes = 16 << 20

// Document is one JSON object that a projection keeps.
type Document struct {
	ID      string          // 1 to MaxDocumentIDBytes bytes
	Version int64           // the position of the last event applied to it
	Data    json.RawMessage // a JSON object
}

// DocumentQuery asks for a page of a build's documents, ordered by id as bytes. Predicates and other orders are to stand
// here as well.
type DocumentQuery struct {
	After string // ids above this one; empty: from the first
	Limit int    // at most this many; at least 1
}

// CheckDocumentID reports what keeps text from being a document's id: 1 to MaxDocumentIDBytes bytes of UTF-8 without
// U+0000, which PostgreSQL cannot keep. where names the place in the request.
func CheckDocumentID(where, id string) error {
	switch {
	case id == "" || len(id) > MaxDocumentIDBytes:
		return Errorf(CodeInvalidRequest, where, "the document id has %d bytes; it needs 1 to %d", len(id), MaxDocumentIDBytes)
	case !utf8.ValidString(id):
		return Errorf(CodeInvalidRequest, where, "the document id %q is not UTF-8", clip(id, 60))
	case strings.IndexByte(id, 0) >= 0:
		return Errorf(CodeInvalidRequest, where, "the document id %q has U+0000 in it, which cannot be kept", clip(id, 60))
	}
	return nil
}
