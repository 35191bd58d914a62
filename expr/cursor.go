package expr

import "unicode"

// cursor is a position in a text.
type cursor struct {
	text   []rune
	offset int
}

func newCursor(source string, line, column int) cursor {
	text := []rune(source)
	offset := 0
	for ; line > 1 && offset < len(text); offset++ {
		if text[offset] == '\n' {
			line--
		}
	}
	return cursor{text, min(offset+column-1, len(text))}
}

func (c cursor) here() rune {
	if c.offset < len(c.text) {
		return c.text[c.offset]
	}
	return 0
}

func (c cursor) before() rune {
	if c.offset > 0 {
		return c.text[c.offset-1]
	}
	return 0
}

func (c cursor) skip(n int) cursor { return cursor{c.text, min(c.offset+n, len(c.text))} }

// word returns the name that begins here.
func (c cursor) word() string {
	end := c.offset
	for end < len(c.text) && isNameRune(c.text[end]) {
		end++
	}
	return string(c.text[c.offset:end])
}

// previousWord returns the name before this position, ignoring spaces.
func (c cursor) previousWord() string {
	end := c.offset
	for end > 0 && unicode.IsSpace(c.text[end-1]) {
		end--
	}
	start := end
	for start > 0 && isNameRune(c.text[start-1]) {
		start--
	}
	return string(c.text[start:end])
}

// nameStart returns the column where the name before this position begins; column is that of the position.
func (c cursor) nameStart(column int) int {
	if c.here() != '(' {
		return column
	}
	return max(1, column-len([]rune(c.previousWord())))
}

func isNameRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }
