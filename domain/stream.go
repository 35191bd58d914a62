package domain

import "strings"

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
