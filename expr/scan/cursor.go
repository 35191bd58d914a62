// Package scan finds names and characters in the text of an expression, for messages that say where an error is.
package scan

import "unicode"

// Cursor is a place in a text.
type Cursor struct {
	Text   []rune
	Offset int
}

// At returns the place in the text at a line and column, both from 1.
func At(text string, line, column int) Cursor {
	runes := []rune(text)
	offset := 0
	for ; line > 1 && offset < len(runes); offset++ {
		if runes[offset] == '\n' {
			line--
		}
	}
	return Cursor{runes, min(offset+column-1, len(runes))}
}

// Here returns the character at the place; 0 at the end.
func (c Cursor) Here() rune {
	if c.Offset < len(c.Text) {
		return c.Text[c.Offset]
	}
	return 0
}

// Before returns the character before the place; 0 at the start.
func (c Cursor) Before() rune {
	if c.Offset > 0 {
		return c.Text[c.Offset-1]
	}
	return 0
}

// Skip returns the place n characters on.
func (c Cursor) Skip(n int) Cursor { return Cursor{c.Text, min(c.Offset+n, len(c.Text))} }

// To returns another place in the text.
func (c Cursor) To(offset int) Cursor { return Cursor{c.Text, offset} }

// Word returns the name that begins here.
func (c Cursor) Word() string {
	end := c.Offset
	for end < len(c.Text) && IsNameRune(c.Text[end]) {
		end++
	}
	return string(c.Text[c.Offset:end])
}

// PreviousWord returns the name before this place, ignoring spaces.
func (c Cursor) PreviousWord() string {
	end := c.Offset
	for end > 0 && unicode.IsSpace(c.Text[end-1]) {
		end--
	}
	start := end
	for start > 0 && IsNameRune(c.Text[start-1]) {
		start--
	}
	return string(c.Text[start:end])
}

// NameStart returns the column where the name of a call begins; column is that of its opening parenthesis. Any other
// column stays the same.
func (c Cursor) NameStart(column int) int {
	if c.Here() != '(' {
		return column
	}
	return max(1, column-len([]rune(c.PreviousWord())))
}

// IsNameRune reports whether names contain the character.
func IsNameRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// Clip shortens text from data for a message.
func Clip(text string) string {
	const most = 80
	n := 0
	for i := range text {
		if n == most {
			return text[:i] + "..."
		}
		n++
	}
	return text
}
