package expr

import (
	"fmt"
	"strings"
)

// CompileError says why a text is not a valid expression, where, and what to write instead.
type CompileError struct {
	Line    int    // from 1
	Column  int    // from 1, in code points
	Message string // what is wrong
	Hint    string // what to write instead; empty if unknown
	Source  string // the whole expression
}

// Error returns place, message and hint in one line.
func (e *CompileError) Error() string {
	text := fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// Snippet returns the line of the error, with a caret below the column; empty if the text has no such line. It cuts
// long lines around the column.
func (e *CompileError) Snippet() string {
	lines := strings.Split(e.Source, "\n")
	if e.Line < 1 || e.Line > len(lines) {
		return ""
	}
	const before, after = 60, 40
	line := []rune(strings.ReplaceAll(lines[e.Line-1], "\t", " "))
	column := min(max(0, e.Column-1), len(line))
	start, end := max(0, column-before), min(len(line), column+after)
	return string(line[start:end]) + "\n" + strings.Repeat(" ", column-start) + "^"
}
