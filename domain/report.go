package domain

import "strings"

// A report is an event that the service itself appends about a tenant's dead letters, parked documents and alerts. The
// categories of reports are reserved: clients cannot append to them.

const (
	deadLetterPrefix = "dlq."
	reservedPrefix   = "manifold."
)

// AlertsCategory is the category of reports about what has stopped, fails or lags, and about its end.
const AlertsCategory = reservedPrefix + "alerts"

// DeadLetterCategory returns the category of the reports about a group's dead letters: "dlq." and the group's name,
// with "_" for each "-", which no category may contain. A name that is too long is cut, and ends with a hash.
func DeadLetterCategory(group string) string {
	category := deadLetterPrefix + strings.ReplaceAll(group, "-", "_")
	if len(category) <= MaxCategoryBytes {
		return category
	}
	hash := strings.ReplaceAll(DeriveEventID(category).String(), "-", "")
	return category[:MaxCategoryBytes-1-len(hash)] + "." + hash
}

// ParkedCategory returns the category of the reports about a projection's parked documents. It is none of a group's,
// because only service groups have a dot in their name, and none is of the kind "projection".
func ParkedCategory(projection string) string { return DeadLetterCategory("projection." + projection) }

// IsReport reports whether a stream is one of reports.
func IsReport(stream string) bool {
	return strings.HasPrefix(stream, deadLetterPrefix) || strings.HasPrefix(stream, reservedPrefix)
}

// ReportPrefixes returns the beginnings of the categories of reports.
func ReportPrefixes() []string { return []string{deadLetterPrefix, reservedPrefix} }

// CheckAppendable returns an error if only the service may append to a stream.
func CheckAppendable(where, stream string) error {
	if !IsReport(stream) {
		return nil
	}
	return Errorf(CodeInvalidRequest, where, "the stream %q is reserved: only Manifold appends to categories that begin with %q or %q; use another category",
		Clip(stream, 60), deadLetterPrefix, reservedPrefix)
}
