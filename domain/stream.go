package domain

import "strings"

// Category returns the part of a stream's name before the first "-".
func Category(stream string) string {
	category, _, _ := strings.Cut(stream, "-")
	return category
}

// Key returns the part of a stream's name after the first "-": the aggregate's id.
func Key(stream string) string {
	_, key, _ := strings.Cut(stream, "-")
	return key
}

// CheckStream returns an error unless stream is a valid stream name: category-id, of at most MaxStreamBytes. The
// category must be valid by CheckCategory. The id is printable ASCII without space, quote, backslash, slash, "?", "#"
// and "%", so that a URL's path can contain the name unescaped. The argument where names the place in the request.
func CheckStream(where, stream string) error {
	if len(stream) > MaxStreamBytes {
		return Errorf(CodeInvalidRequest, where, "the stream name has %d bytes; at most %d are allowed", len(stream), MaxStreamBytes)
	}
	category, id, dash := strings.Cut(stream, "-")
	if !dash || id == "" {
		return Errorf(CodeInvalidRequest, where, "%q is not a stream name; one is category-id, such as order-123", Clip(stream, 60))
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

// CheckCategory returns an error unless category is valid: 1 to MaxCategoryBytes of letters, digits, "_" and ".".
func CheckCategory(where, category string) error {
	return CheckAlphabet(where, "category", category, MaxCategoryBytes, "_.")
}

// CheckType returns an error unless eventType is valid: 1 to MaxTypeBytes of letters, digits, and "_.:/+-".
func CheckType(where, eventType string) error {
	return CheckAlphabet(where, "event type", eventType, MaxTypeBytes, "_.:/+-")
}
