package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
)

// writeList prints the items of a list. It prints a table with a header, whose columns row returns, or with asJSON
// one object per line. For an empty list it prints nothing.
func writeList[T any](out io.Writer, asJSON bool, header string, all iter.Seq2[T, error], row func(T) []any) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for thing, err := range all {
		if err != nil {
			return err
		}
		if asJSON {
			if err := writeJSON(out, thing); err != nil {
				return err
			}
			continue
		}
		if header != "" {
			fmt.Fprintln(t, header)
			header = ""
		}
		for i, column := range row(thing) {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, column)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// writeTable prints a complete list as a table, like writeList.
func writeTable[T any](out io.Writer, header string, list []T, row func(T) []any) error {
	return writeList(out, false, header, func(yield func(T, error) bool) {
		for _, thing := range list {
			if !yield(thing, nil) {
				return
			}
		}
	}, row)
}

// jsonFlag adds --json to a command that otherwise prints a table.
func jsonFlag(command *cobra.Command, asJSON *bool, of string) {
	command.Flags().BoolVar(asJSON, "json", false, "print "+of+", one JSON object a line, as the service answers")
}

// writeJSON writes a value on one line.
func writeJSON(out io.Writer, value any) error {
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false) // people read it
	return lines.Encode(value)
}

// howMany formats a number of things: 1 event, 2 events.
func howMany(number int64, thing string) string {
	if number != 1 {
		thing += "s"
	}
	return strconv.FormatInt(number, 10) + " " + thing
}

// orZero returns the number, or 0 if it is missing.
func orZero[T any](number *T) T {
	if number == nil {
		var zero T
		return zero
	}
	return *number
}

// seconds converts a number of seconds from the service to a duration.
func seconds(number float64) time.Duration {
	return time.Duration(number * float64(time.Second)).Round(time.Millisecond)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

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
