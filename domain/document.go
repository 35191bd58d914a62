package domain

import "encoding/json"

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
