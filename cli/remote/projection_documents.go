package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// documentsFlags select documents and the fields to show.
type documentsFlags struct {
	filter, orderBy, fields, tenant string
	pageSize                        int
	minPosition                     int64
	all, count, explain             bool
}

func projectionDocuments(to *connection) *cobra.Command {
	f := &documentsFlags{}
	command := &cobra.Command{
		Use:   "documents NAME",
		Short: "Read a projection's documents, one JSON object a line",
		Long: `Read a page of a projection's documents, or --all, one JSON object a line with id, position and document. -o table shows the
documents' members in columns, those of the first page.

With --explain and the operator's key, show how the projection's database executes the query for the tenant in --tenant.`,
		Example: `  manifold projection documents orders --filter 'doc.status == "open" && doc.total > 100' --order-by 'total desc,customer'
  manifold projection documents orders --fields status,total -o table
  manifold projection documents orders --filter '"vip" in doc.tags' --count`,
		Args: cobra.ExactArgs(1),
		PersistentPreRun: func(*cobra.Command, []string) {
			if f.explain {
				to.asOperator()
			}
		},
		RunE: to.run(func(ctx context.Context, c *call) error {
			switch {
			case f.explain:
				return f.explainQuery(ctx, c)
			case f.count:
				return f.countDocuments(ctx, c)
			default:
				return f.writeDocuments(ctx, c)
			}
		}),
	}
	command.Flags().StringVar(&f.filter, "filter", "", "an expression of doc: only documents for which it is true")
	command.Flags().StringVar(&f.orderBy, "order-by", "", "paths to sort by, such as 'total desc,customer' (default: the id)")
	command.Flags().StringVar(&f.fields, "fields", "", "paths of the fields to return, such as 'total,customer.name' (default: all)")
	command.Flags().IntVar(&f.pageSize, "page-size", 100, "the number of documents per page, 1 to 1000")
	command.Flags().Int64Var(&f.minPosition, "min-position", 0, "wait until the projection has seen the log up to this position")
	command.Flags().BoolVar(&f.all, "all", false, "read all pages")
	command.Flags().BoolVar(&f.count, "count", false, "print only the number of documents")
	command.Flags().BoolVar(&f.explain, "explain", false, "print only how the database executes the query (operator)")
	command.Flags().StringVar(&f.tenant, "tenant", "", "with --explain: the name or id of the documents' tenant")
	withJSON("documents", command)
	command.Flags().Lookup("output").Usage = "ndjson (default), json or yaml: documents as the service returns them; table: in columns"
	flagsTogether(command, "explain", "tenant")
	exclusiveFlags(command, "all", "count", "explain")
	exclusiveFlags(command, "output", "count", "explain")
	return command
}

// params returns the parameters of a request for one page.
func (f *documentsFlags) params() *client.ListDocumentsParams {
	p := &client.ListDocumentsParams{
		Filter: given(f.filter), OrderBy: given(f.orderBy), Fields: given(f.fields), PageSize: &f.pageSize,
	}
	if f.minPosition > 0 {
		p.MinPosition = &f.minPosition
	}
	return p
}

func (f *documentsFlags) writeDocuments(ctx context.Context, c *call) error {
	pages := f.pages(ctx, c)
	if c.changed("output") && !c.asJSON {
		return printDocumentTable(c.out, pages)
	}
	return printJSON(c.out, func(yield func(client.Document, error) bool) {
		for page, err := range pages {
			if err != nil {
				yield(client.Document{}, err)
				return
			}
			for _, document := range page {
				if !yield(document, nil) {
					return
				}
			}
		}
	})
}

// pages yields the pages to print, and says on standard error whether there are more.
func (f *documentsFlags) pages(ctx context.Context, c *call) iter.Seq2[[]client.Document, error] {
	return func(yield func([]client.Document, error) bool) {
		for params := f.params(); ; {
			response, err := c.ListDocuments(ctx, c.args[0], params)
			page, err := read[client.DocumentList](response, err)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, warning := range page.Warnings {
				if params.PageToken == nil { // every page has the same warnings
					fmt.Fprintln(c.people, "warning:", warning)
				}
			}
			next := nextPage(response)
			if !yield(page.Documents, nil) || next == "" {
				return
			}
			if !f.all {
				fmt.Fprintf(c.people, "the first %s; use --all for all, or --count for their number\n", howMany(len(page.Documents), "document"))
				return
			}
			params.PageToken = &next
		}
	}
}

// maxCell is how many characters of a member a table shows.
const maxCell = 60

// printDocumentTable prints documents with a column for each member that a document of the first page has. Each page is
// aligned on its own, so that not all documents are in memory.
func printDocumentTable(out *output, pages iter.Seq2[[]client.Document, error]) error {
	var columns []string
	for page, err := range pages {
		if err != nil {
			return err
		}
		rows, members := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), make([]map[string]json.RawMessage, len(page))
		for i, document := range page {
			_ = json.Unmarshal(document.Document, &members[i]) // a document that is not an object has no members
		}
		if columns == nil {
			columns = memberNames(members)
			fmt.Fprint(rows, "ID\tPOSITION")
			for _, column := range columns {
				fmt.Fprint(rows, "\t", cellText(column))
			}
			fmt.Fprintln(rows)
		}
		for i, document := range page {
			fmt.Fprintf(rows, "%s\t%d", printable(document.Id), document.Position)
			for _, column := range columns {
				fmt.Fprint(rows, "\t", cell(members[i][column]))
			}
			fmt.Fprintln(rows)
		}
		if err := rows.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// memberNames returns the names of all members, sorted.
func memberNames(objects []map[string]json.RawMessage) []string {
	all := make(map[string]bool)
	for _, object := range objects {
		for name := range object {
			all[name] = true
		}
	}
	return append([]string{}, slices.Sorted(maps.Keys(all))...)
}

// cell returns a JSON value for a table: a text without its quotes.
func cell(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return cellText(text)
	}
	return cellText(string(value))
}

// cellText returns a text on one line, cut off if it is long.
func cellText(text string) string {
	runes := []rune(oneLine(text))
	if len(runes) > maxCell {
		runes = append(runes[:maxCell-1], '…')
	}
	return printable(string(runes))
}

// printable replaces characters that would control a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

func (f *documentsFlags) countDocuments(ctx context.Context, c *call) error {
	params := f.params()
	// The order and fields do not affect the count, but the service must still report mistakes in them.
	params.Count, params.PageSize = new("exact"), new(1)
	page, err := read[client.DocumentList](c.ListDocuments(ctx, c.args[0], params))
	if err != nil {
		return err
	}
	if page.Count == nil {
		return errors.New("the service cannot count: it runs an older release")
	}
	return c.out.printf("%d\n", *page.Count)
}

func (f *documentsFlags) explainQuery(ctx context.Context, c *call) error {
	tenant, err := findTenant(ctx, c, f.tenant)
	if err != nil {
		return err
	}
	params := f.params()
	params.Explain, params.Tenant = new(true), &tenant.Id
	page, err := read[client.DocumentList](c.ListDocuments(ctx, c.args[0], params))
	if err != nil {
		return err
	}
	if page.Explanation == nil {
		return errors.New("the service cannot explain: it runs an older release")
	}
	var plan bytes.Buffer
	if len(page.Explanation.Plan) > 0 {
		if err := json.Indent(&plan, page.Explanation.Plan, "", "  "); err != nil {
			return fmt.Errorf("the plan: %w", err)
		}
		plan.WriteByte('\n')
	}
	return c.out.printf("database %s:\n%s\n\n%s", page.Explanation.Database, page.Explanation.Statement, plan.Bytes())
}
