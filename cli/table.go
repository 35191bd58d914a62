package cli

import (
	"fmt"
	"io"
	"iter"
	"text/tabwriter"
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

// upTo yields at most limit items of a list, or all if limit is 0.
func upTo[T any](all iter.Seq2[T, error], limit int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		left := limit
		for thing, err := range all {
			if !yield(thing, err) {
				return
			}
			if left--; left == 0 {
				return
			}
		}
	}
}
