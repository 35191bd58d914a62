package main

import (
	"fmt"
	"io"
	"iter"
	"text/tabwriter"
)

// writeList prints the things of a list: as a table with a header, of which row gives the columns, or with asJSON an object a
// line. Of an empty list nothing is printed.
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

// writeTable prints a list that has come whole, as writeList does.
func writeTable[T any](out io.Writer, header string, list []T, row func(T) []any) error {
	return writeList(out, false, header, func(yield func(T, error) bool) {
		for _, thing := range list {
			if !yield(thing, nil) {
				return
			}
		}
	}, row)
}

// upTo yields the first of a list, at most limit of them; 0: all.
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
