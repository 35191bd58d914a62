package auth

import (
	"fmt"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// CategoryPattern selects categories. A pattern and a category both consist of segments separated by ".". In a pattern,
// the segment "*" matches exactly one segment, "**" matches any number of segments including none, and any other
// segment matches itself. For example, heartbeat.* matches heartbeat.web; heartbeat.** also matches heartbeat and
// heartbeat.web.eu. The empty pattern matches every category.
type CategoryPattern string

// MaxCategoryPatternBytes limits the length of a CategoryPattern.
const MaxCategoryPatternBytes = 200

const (
	anySegment  = "*"
	anySegments = "**"
)

// ParseCategoryPattern parses a pattern, which must not be empty. The error says what is not allowed.
func ParseCategoryPattern(text string) (CategoryPattern, error) {
	if text == "" || len(text) > MaxCategoryPatternBytes {
		return "", fmt.Errorf("the pattern has %d bytes; it needs 1 to %d", len(text), MaxCategoryPatternBytes)
	}
	before := ""
	for segment := range strings.SplitSeq(text, ".") {
		switch {
		case segment == anySegments && before == anySegments:
			return "", fmt.Errorf("%q has ** after **, but one already matches any number of segments; write it once", text)
		case segment == anySegment || segment == anySegments || segment == "":
		default:
			if strings.Contains(segment, anySegment) {
				return "", fmt.Errorf("%q has a * next to other characters; * and ** match whole segments between dots", text)
			}
			if err := domain.CheckAlphabet("", "segment", segment, domain.MaxCategoryBytes, "_"); err != nil {
				return "", err
			}
		}
		before = segment
	}
	return CategoryPattern(text), nil
}

// Matches reports whether the pattern matches a category. Its time is at most proportional to the product of both
// lengths. It allocates no memory.
func (p CategoryPattern) Matches(category string) bool {
	if p.all() {
		return true
	}
	pattern := string(p)
	// The next segment begins at these offsets; an offset greater than the text's length means that none is left.
	at, in := 0, 0
	// Where to resume if the last ** has to match one more segment: in the pattern after that **, and in the category.
	behind, tried := -1, 0
	for in <= len(category) {
		if at <= len(pattern) {
			wanted, next := segmentAt(pattern, at)
			if wanted == anySegments {
				behind, tried, at = next, in, next
				continue
			}
			// A category has no **. If this one does, it is another pattern, passed by Covers, and ** matches several
			// segments.
			got, after := segmentAt(category, in)
			if wanted == got || wanted == anySegment && got != anySegments {
				at, in = next, after
				continue
			}
		}
		if behind < 0 {
			return false
		}
		_, tried = segmentAt(category, tried)
		at, in = behind, tried
	}
	for at <= len(pattern) {
		wanted, next := segmentAt(pattern, at)
		if wanted != anySegments {
			return false
		}
		at = next
	}
	return true
}

// Covers reports whether p matches every category that other matches. It compares the patterns segment by segment. A
// true result is always right; a false one may be wrong if several segments of both patterns are wildcards.
func (p CategoryPattern) Covers(other CategoryPattern) bool {
	if other.all() {
		other = anySegments
	}
	return p.Matches(string(other))
}

func (p CategoryPattern) all() bool { return p == "" || p == anySegments }

// segmentAt returns the segment that begins at an offset, and the offset of the next segment.
func segmentAt(text string, at int) (segment string, next int) {
	if end := strings.IndexByte(text[at:], '.'); end >= 0 {
		return text[at : at+end], at + end + 1
	}
	return text[at:], len(text) + 1
}
