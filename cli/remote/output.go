package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/manifold-es/manifold/client"
)

// output writes a command's results, in colour on a terminal. It keeps the first error of a write, which the command
// returns at its end.
type output struct {
	to     io.Writer
	people io.Writer // for notes, which are no results; nil means to
	colour bool
	format string // of values: json, yaml, or one line each
	values int    // written so far
	err    error
}

func newOutput(to io.Writer) *output {
	return &output{to: to, colour: isTerminal(to) && os.Getenv("NO_COLOR") == ""}
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// printf writes a formatted text. It returns the first error so far.
func (o *output) printf(format string, args ...any) error {
	fmt.Fprintf(o, format, args...)
	return o.err
}

// note writes a text for people, which is not part of the results.
func (o *output) note(format string, args ...any) {
	if o.people == nil {
		o.printf(format, args...)
		return
	}
	fmt.Fprintf(o.people, format, args...)
}

// json writes a value: on one line, or over several lines in the formats json and yaml. YAML separates values by ---.
func (o *output) json(value any) error {
	lines := json.NewEncoder(o)
	lines.SetEscapeHTML(false) // people read it
	switch o.format {
	case "json":
		lines.SetIndent("", "  ")
	case "yaml":
		return o.yaml(value)
	}
	return lines.Encode(value)
}

func (o *output) yaml(value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		text, err = appendYAML(nil, text)
	}
	if err != nil {
		return err
	}
	if o.values++; o.values > 1 {
		o.printf("---\n")
	}
	return o.printf("%s", text)
}

// printIndented writes JSON over several lines.
func printIndented(out *output, value json.RawMessage) error {
	var text bytes.Buffer
	if err := json.Indent(&text, value, "", "  "); err != nil {
		return err
	}
	return out.printf("%s\n", text.Bytes())
}

// These are the colours for additions, removals and changes.
const (
	green  = "\x1b[32m"
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	ended  = "\x1b[0m"
)

func (o *output) line(colour, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if o.colour && colour != "" {
		text = colour + text + ended
	}
	fmt.Fprintln(o, text)
}

// changes writes the differences between definitions.
func (o *output) changes(changes []client.FieldChange) {
	for _, change := range changes {
		o.line("", "    %s", change.Field)
		o.value(red, "-", change.Before)
		o.value(green, "+", change.After)
	}
}

// value writes a field's value. It writes an expression as its author did, over as many lines as it has.
func (o *output) value(colour, mark string, value json.RawMessage) {
	if value == nil {
		return
	}
	text := string(value)
	var expression string
	if json.Unmarshal(value, &expression) == nil {
		text = strings.TrimRight(expression, "\n")
	}
	for line := range strings.SplitSeq(text, "\n") {
		o.line(colour, "      %s %s", mark, line)
	}
}

// isTerminal reports whether a file is a terminal, to which a person writes or from which a person reads.
func isTerminal(file any) bool {
	f, ok := file.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// howMany formats a number of things: 1 event, 2 events.
func howMany[N int | int64](number N, thing string) string {
	if number != 1 {
		thing += "s"
	}
	return strconv.FormatInt(int64(number), 10) + " " + thing
}

// known formats a number for a table, or "" if it is missing.
func known[N int | int64](number *N) string {
	if number == nil {
		return ""
	}
	return strconv.FormatInt(int64(*number), 10)
}

// orZero returns the number, or 0 if it is missing.
func orZero[T any](number *T) T {
	if number == nil {
		return *new(T)
	}
	return *number
}

// given returns a parameter, or nil for the zero value, which is left out of the request.
func given[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

// seconds converts a number of seconds from the service to a duration.
func seconds(number float64) time.Duration {
	return time.Duration(number * float64(time.Second)).Round(time.Millisecond)
}

// local formats a time in the user's time zone.
func local(moment time.Time) string { return moment.Local().Format(time.RFC3339) }

// at formats a time with words before it, or returns "" if the time is missing.
func at(words string, moment *time.Time) string {
	if moment == nil {
		return ""
	}
	return words + local(*moment)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// indented aligns the lines of a text with the values of a listing, which begin at the column.
func indented(text string, column int) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+strings.Repeat(" ", column))
}

// newProgress returns a progress bar on standard error, which prints nothing if that is not a terminal. total is -1
// if it is unknown.
func newProgress(total int64, what string, bytes bool) *progressbar.ProgressBar {
	visible := false
	if info, err := os.Stderr.Stat(); err == nil {
		visible = info.Mode()&os.ModeCharDevice != 0
	}
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetVisibility(visible),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(bytes),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetWidth(30),
	)
}

// givenList is given for a list.
func givenList[T any](list []T) *[]T {
	if len(list) == 0 {
		return nil
	}
	return &list
}
