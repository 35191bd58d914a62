package domain

import (
	"fmt"
	"strings"
)

// CategoryPattern says which categories are meant. Both it and a category are segments with "." between them; a segment
// "*" of the pattern stands for exactly one segment, "**" for any number of them, none as well, and any other for itself:
// heartbeat.* is heartbeat.web, heartbeat.** is that and heartbeat and heartbeat.web.eu. The empty pattern is every
// category.
type CategoryPattern string

// MaxCategoryPatternBytes bounds a CategoryPattern.
const MaxCategoryPatternBytes = 200

const (
	anySegment  = "*"
	anySegments = "**"
)

// ParseCategoryPattern reads a pattern, which must not be empty. The error says what in it is not allowed.
func ParseCategoryPattern(text string) (CategoryPattern, error) {
	if text == "" || len(text) > MaxCategoryPatternBytes {
		return "", fmt.Errorf("the pattern has %d bytes; it needs 1 to %d", len(text), MaxCategoryPatternBytes)
	}
	before := ""
	for segment := range strings.SplitSeq(text, ".") {
		switch {
		case segment == anySegments && before == anySegments:
			return "", fmt.Errorf("%q has ** behind **, which stands for any number of segments already; write it once", text)
		case segment == anySegment || segment == anySegments || segment == "":
		default:
			if strings.Contains(segment, anySegment) {
				return "", fmt.Errorf("%q has a * beside other characters; * and ** stand for whole segments, between dots", text)
			}
			if err := checkAlphabet("", "segment", segment, MaxCategoryBytes, "_"); err != nil {
				return "", err
			}
		}
		before = segment
	}
	return CategoryPattern(text), nil
}

// Matches reports whether a category is meant. It takes time in proportion to the product of both lengths at most, and
// no memory.
func (p CategoryPattern) Matches(category string) bool {
	if p.all() {
		return true
	}
	pattern := string(p)
	// Where the next segment begins; behind the text's end there is none any more.
	at, in := 0, 0
	// Where to go on when the last ** has to stand for one segment more: the pattern behind it, and the category.
	behind, tried := -1, 0
	for in <= len(category) {
		if at <= len(pattern) {
			wanted, next := segmentAt(pattern, at)
			if wanted == anySegments {
				behind, tried, at = next, in, next
				continue
			}
			// A category has no **: that is another pattern's, which Covers asks about, and more than one segment.
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

// Covers reports whether every category that other means is meant by p, as far as that is seen segment by segment: a yes
// is always right, and a no may be wrong where several of the patterns' segments stand for others.
func (p CategoryPattern) Covers(other CategoryPattern) bool {
	if other.all() {
		other = anySegments
	}
	return p.Matches(string(other))
}

func (p CategoryPattern) all() bool { return p == "" || p == anySegments }

// segmentAt returns the segment that begins at a place, and where the next one does.
func segmentAt(text string, at int) (segment string, next int) {
	if end := strings.IndexByte(text[at:], '.'); end >= 0 {
		return text[at : at+end], at + end + 1
	}
	return text[at:], len(text) + 1
}
