package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/manifold-es/manifold/client"
)

// painter writes lines for people, in colour on a terminal.
type painter struct {
	out    io.Writer
	colour bool
	err    error
}

func newPainter(out io.Writer) painter {
	return painter{out: out, colour: isTerminal(out) && os.Getenv("NO_COLOR") == ""}
}

// These are the colours for additions, removals and changes.
const (
	green  = "\x1b[32m"
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	ended  = "\x1b[0m"
)

func (p *painter) line(colour, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if p.colour && colour != "" {
		text = colour + text + ended
	}
	if _, err := fmt.Fprintln(p.out, text); p.err == nil {
		p.err = err
	}
}

// fields writes the differences between definitions.
func (p *painter) fields(changes []client.FieldChange) {
	for _, f := range changes {
		p.line("", "    %s", f.Field)
		p.value(red, "-", f.Before)
		p.value(green, "+", f.After)
	}
}

// value writes a field's value. It writes an expression as its author did, over as many lines as it has.
func (p *painter) value(colour, mark string, value json.RawMessage) {
	if value == nil {
		return
	}
	text := string(value)
	var expression string
	if json.Unmarshal(value, &expression) == nil {
		text = strings.TrimRight(expression, "\n")
	}
	for line := range strings.SplitSeq(text, "\n") {
		p.line(colour, "      %s %s", mark, line)
	}
}

// isTerminal reports whether a file is a terminal, to which a person writes or from which a person reads.
func isTerminal(file any) bool {
	f, ok := file.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
