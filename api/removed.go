package api

import (
	"net/http"
	"strconv"

	"github.com/manifold-es/manifold/domain"
)

// headerRemovedTo is up to where retention has removed a list's events: a position or, for a single stream, a version.
const headerRemovedTo = "Manifold-Removed-To"

// setRemovedTo sets the header if retention has removed something.
func setRemovedTo(header http.Header, to int64) {
	if to > 0 {
		header.Set(headerRemovedTo, strconv.FormatInt(to, 10))
	}
}

// missingVersion returns the highest version that is missing according to a slice of a stream, or 0. from is the
// requested start of the slice, and version is the stream's version. whole means that nothing follows the slice in its
// direction.
func missingVersion(events []domain.Event, from, version int64, direction domain.Direction, whole bool) int64 {
	missing := int64(0)
	if direction == domain.Backward {
		expected := min(from, version)
		for i := range events {
			if events[i].Version < expected {
				return expected
			}
			expected = events[i].Version - 1
		}
		if whole {
			return max(expected, 0)
		}
		return 0
	}
	expected := from
	for i := range events {
		if events[i].Version > expected {
			missing = events[i].Version - 1
		}
		expected = events[i].Version + 1
	}
	if whole && expected <= version {
		missing = version
	}
	return missing
}
