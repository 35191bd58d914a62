package domain

import "strings"

// Limits of what a client may send. They are part of the API: raising one is a change, lowering one a breaking change.
const (
	MaxStreamBytes     = 256     // a stream's whole name
	MaxCategoryBytes   = 100     // what stands before its first "-"
	MaxTypeBytes       = 200     // an event's type
	MaxNameBytes       = 100     // a projection's, tenant's or key's name
	MaxDocumentIDBytes = 512     // a document's id
	MaxEventBytes      = 1 << 20 // data and metadata of one event, as sent
	MaxRequestBytes    = 8 << 20 // the body of one request, uncompressed
	MaxRequestEvents   = 1000    // the events of one request
	MaxJSONDepth       = 128     // arrays and objects inside one another
)

// Category returns what stands before the first "-" of a stream's name.
func Category(stream string) string {
	category, _, _ := strings.Cut(stream, "-")
	return category
}

// Key returns what stands behind the first "-" of a stream's name: the aggregate's id.
func Key(stream string) string {
	_, key, _ := strings.Cut(stream, "-")
	return key
}

// CheckStream reports what is wrong with a stream's name: category-id, of at most MaxStreamBytes. The category is as
// CheckCategory wants it; the id is printable ASCII without space, quote, backslash, slash, "?", "#" and "%", so that a
// name stands in a URL's path as it is. where names the place in the request.
func CheckStream(where, stream string) error {
	if len(stream) > MaxStreamBytes {
		return Errorf(CodeInvalidRequest, where, "the stream name has %d bytes; at most %d are allowed", len(stream), MaxStreamBytes)
	}
	category, id, dash := strings.Cut(stream, "-")
	if !dash || id == "" {
		return Errorf(CodeInvalidRequest, where, "%q is not a stream name; one is category-id, such as order-123", clip(stream, 60))
	}
	if err := CheckCategory(where, category); err != nil {
		return err
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' || strings.IndexByte("\"\\/?#%", c) >= 0 {
			return Errorf(CodeInvalidRequest, where, "the stream name has %q at byte %d of its id; use printable ASCII without space, \", \\, /, ?, # and %%", c, i+1)
		}
	}
	return nil
}

// CheckCategory reports what is wrong with a category: 1 to MaxCategoryBytes of letters, digits, "_" and ".".
func CheckCategory(where, category string) error {
	return checkAlphabet(where, "category", category, MaxCategoryBytes, "_.")
}

// CheckType reports what is wrong with an event's type: 1 to MaxTypeBytes of letters, digits, and "_.:/+-".
func CheckType(where, eventType string) error {
	return checkAlphabet(where, "event type", eventType, MaxTypeBytes, "_.:/+-")
}

// CheckName reports what is wrong with the name of a projection: 1 to MaxNameBytes of lower-case letters, digits, "-"
// and "_", beginning with a letter, since tables and views are named after it.
func CheckName(where, name string) error {
	if err := checkAlphabet(where, "name", name, MaxNameBytes, "-_"); err != nil {
		return err
	}
	if name[0] < 'a' || name[0] > 'z' || strings.ToLower(name) != name {
		return Errorf(CodeInvalidRequest, where, "%q is not a name; use lower-case letters, digits, - and _, beginning with a letter", name)
	}
	return nil
}

func checkAlphabet(where, what, text string, most int, punctuation string) error {
	if text == "" || len(text) > most {
		return Errorf(CodeInvalidRequest, where, "the %s has %d bytes; it needs 1 to %d", what, len(text), most)
	}
	for i := range len(text) {
		c := text[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && strings.IndexByte(punctuation, c) < 0 {
			return Errorf(CodeInvalidRequest, where, "the %s has %q at byte %d; use letters, digits and %s", what, c, i+1, strings.Join(strings.Split(punctuation, ""), " "))
		}
	}
	return nil
}
