package domain

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// MaxDocumentBytes limits a document's data, as JSON text. It is the same for every database: the limit of the
// smallest.
const MaxDocumentBytes = 16 << 20

// Document is one JSON object that a projection keeps.
type Document struct {
	ID      string          // 1 to MaxDocumentIDBytes bytes
	Version int64           // the position of the last event applied to it
	Data    json.RawMessage // a JSON object
}

// DocumentQuery asks for a page of a build's documents.
type DocumentQuery struct {
	Where Predicate // nil: all documents
	Order []Order   // at most MaxOrderTerms; ties, and all documents if empty, are ordered by id as bytes
	After *SortKey  // only documents after this place; nil: from the first. Its document may no longer exist
	Limit int       // at most this many; at least 1
	// MaxBytes ends the page after the document with which the total size of the data reaches it; 0: no limit. It
	// limits the memory that a page of large documents takes.
	MaxBytes int
}

// Cut returns the page up to the document where Limit or MaxBytes ends it.
func (q DocumentQuery) Cut(page []Document) []Document {
	bytes := 0
	for i := range page {
		if i == q.Limit || q.MaxBytes > 0 && bytes >= q.MaxBytes {
			return page[:i]
		}
		bytes += len(page[i].Data)
	}
	return page
}

// Ended reports whether a page is the last one, that is, whether neither Limit nor MaxBytes ended it.
func (q DocumentQuery) Ended(page []Document) bool {
	bytes := 0
	for i := range page {
		bytes += len(page[i].Data)
	}
	return len(page) < q.Limit && (q.MaxBytes == 0 || bytes < q.MaxBytes)
}

// Check returns an error if the query is invalid: a limit below 1, a place that does not belong to the order, or ids
// and strings that no document can have.
func (q DocumentQuery) Check() error {
	if q.Limit < 1 {
		return Errorf(CodeInvalidRequest, "limit", "%d documents were asked for; ask for at least 1", q.Limit)
	}
	if q.MaxBytes < 0 {
		return Errorf(CodeInvalidRequest, "maxBytes", "%d bytes were asked for; ask for at least 0, which means no limit", q.MaxBytes)
	}
	if len(q.Order) > MaxOrderTerms {
		return Errorf(CodeInvalidRequest, "order", "it has %d parts; at most %d are allowed", len(q.Order), MaxOrderTerms)
	}
	if q.After == nil {
		return nil
	}
	texts := []string{q.After.ID}
	for _, value := range q.After.Values {
		texts = append(texts, value.Text)
	}
	for _, text := range texts {
		if !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0 {
			return Errorf(CodeInvalidRequest, "after", "%q cannot be part of a document", Clip(text, 60))
		}
	}
	if q.After.Unordered && (len(q.Order) == 0 || q.After.Values != nil) || !q.After.Unordered && len(q.After.Values) != len(q.Order) {
		return Errorf(CodeInvalidRequest, "after", "it does not match the query's order")
	}
	return nil
}

// Explanation says how a database answers a query. It is meant for operators.
type Explanation struct {
	Statement string          // in the database's own language, with the parameter values where they can be shown
	Plan      json.RawMessage // as the database describes it; nil if it cannot
}

// CheckDocumentID returns an error unless id is a valid document id: 1 to MaxDocumentIDBytes bytes of UTF-8 without
// U+0000, which PostgreSQL cannot keep. The argument where names the place in the request.
func CheckDocumentID(where, id string) error {
	switch {
	case id == "" || len(id) > MaxDocumentIDBytes:
		return Errorf(CodeInvalidRequest, where, "the document id has %d bytes; it needs 1 to %d", len(id), MaxDocumentIDBytes)
	case !utf8.ValidString(id):
		return Errorf(CodeInvalidRequest, where, "the document id %q is not UTF-8", Clip(id, 60))
	case strings.IndexByte(id, 0) >= 0:
		return Errorf(CodeInvalidRequest, where, "the document id %q has U+0000 in it, which cannot be kept", Clip(id, 60))
	}
	return nil
}
