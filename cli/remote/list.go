package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// table is how a command prints a list.
type table[T any] struct {
	header string // columns, separated by tabs
	row    func(T) []any
	none   string // the items in the sentence that says that there are none; empty: nothing says so
}

// list completes a command that prints a list: as a table, or in another format. With --watch it prints the table again
// and again.
func list[T any](to *connection, command *cobra.Command, items func(ctx context.Context, c *call) iter.Seq2[T, error], table table[T]) *cobra.Command {
	watch := watchFlag(withJSON("the items", command))
	command.RunE = to.run(func(ctx context.Context, c *call) error {
		return watch.run(ctx, c, func(out *output) error {
			if c.asJSON {
				return printJSON(out, items(ctx, c))
			}
			return table.print(out, items(ctx, c))
		})
	})
	return command
}

// print prints the table. Instead of an empty one, people read that there is nothing.
func (t table[T]) print(out *output, items iter.Seq2[T, error]) error {
	columns := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	printed := false
	for item, err := range items {
		if err != nil {
			return err
		}
		if !printed {
			fmt.Fprintln(columns, t.header)
			printed = true
		}
		for i, cell := range t.row(item) {
			if i > 0 {
				fmt.Fprint(columns, "\t")
			}
			fmt.Fprint(columns, cell)
		}
		fmt.Fprintln(columns)
	}
	if !printed && t.none != "" {
		out.note("no %s\n", t.none)
	}
	return columns.Flush()
}

// printJSON prints values in the format of the output, each as soon as it is known. In the format json they are a list.
func printJSON[T any](out *output, items iter.Seq2[T, error]) error {
	if out.format == "json" {
		return printJSONList(out, items)
	}
	for item, err := range items {
		if err != nil {
			return err
		}
		if err := out.json(item); err != nil {
			return err
		}
	}
	return nil
}

func printJSONList[T any](out *output, items iter.Seq2[T, error]) error {
	var text bytes.Buffer
	values := json.NewEncoder(&text)
	values.SetEscapeHTML(false) // people read it
	values.SetIndent("  ", "  ")
	before, after := "[\n  ", "[]\n"
	for item, err := range items {
		if err != nil {
			return err
		}
		text.Reset()
		if err := values.Encode(item); err != nil {
			return err
		}
		if err := out.printf("%s%s", before, bytes.TrimSuffix(text.Bytes(), []byte("\n"))); err != nil {
			return err
		}
		before, after = ",\n  ", "\n]\n"
	}
	return out.printf("%s", after)
}

// pageSize is how many items per page a command requests when it needs all items.
const pageSize = 1000

// pages yields the items of all pages of a list. ask requests one page, with nil as the first page's token. pages
// stops at the first error.
func pages[P, T any](ask func(token *string) (*http.Response, error), items func(page P) []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for token := (*string)(nil); ; {
			response, err := ask(token)
			page, err := read[P](response, err)
			if err != nil {
				yield(*new(T), err)
				return
			}
			for _, item := range items(page) {
				if !yield(item, nil) {
					return
				}
			}
			next := nextPage(response)
			if next == "" {
				return
			}
			token = &next
		}
	}
}

// nextPage returns the page token in an answer's Link header, or "" if there is no further page.
func nextPage(response *http.Response) string {
	for _, link := range response.Header.Values("Link") {
		target, rest, found := strings.Cut(strings.TrimPrefix(strings.TrimSpace(link), "<"), ">")
		if !found || !strings.Contains(rest, `rel="next"`) {
			continue
		}
		if u, err := url.Parse(target); err == nil {
			return u.Query().Get("pageToken")
		}
	}
	return ""
}

// each yields the items of a list that is complete.
func each[T any](items []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

// collect returns all items, or the first error.
func collect[T any](items iter.Seq2[T, error]) (all []T, err error) {
	for item, err := range items {
		if err != nil {
			return nil, err
		}
		all = append(all, item)
	}
	return all, nil
}

// upTo yields at most limit items of a list, or all if limit is 0.
func upTo[T any](items iter.Seq2[T, error], limit int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		left := limit
		for item, err := range items {
			if !yield(item, err) {
				return
			}
			if left--; left == 0 {
				return
			}
		}
	}
}
