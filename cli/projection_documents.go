package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// documentsFlags select documents and the fields to show.
type documentsFlags struct {
	filter, orderBy, fields string
	pageSize                int
	minPosition             int64
	all, count, explain     bool
	tenant                  string
}

func projectionDocuments(to *connection) *cobra.Command {
	f := &documentsFlags{}
	command := &cobra.Command{
		Use:   "documents NAME",
		Short: "Read a projection's documents, one JSON object a line",
		Long: `Read documents of a projection: a page, or --all of them, one JSON object a line with id, position and document.

With --explain and the operator's key, show how the database of the projection answers, for the tenant that --tenant names.`,
		Example: `  manifold projection documents orders --filter 'doc.status == "open" && doc.total > 100' --order-by 'total desc,customer'
  manifold projection documents orders --filter '"vip" in doc.tags' --count`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if f.explain {
				to.asOperator(command)
			}
			service, err := to.open()
			if err != nil {
				return err
			}
			switch {
			case f.explain:
				return explainDocuments(command.Context(), service, args[0], f, command.OutOrStdout())
			case f.count:
				return countDocuments(command.Context(), service, args[0], f, command.OutOrStdout())
			default:
				return writeDocuments(command.Context(), service, args[0], f, command.OutOrStdout(), command.ErrOrStderr())
			}
		},
	}
	command.Flags().StringVar(&f.filter, "filter", "", "an expression of doc: only documents for which it is true")
	command.Flags().StringVar(&f.orderBy, "order-by", "", "paths, such as 'total desc,customer' (default: by id)")
	command.Flags().StringVar(&f.fields, "fields", "", "paths of the parts that are wanted, such as 'total,customer.name' (default: all)")
	command.Flags().IntVar(&f.pageSize, "page-size", 100, "how many documents a page has, 1 to 1000")
	command.Flags().Int64Var(&f.minPosition, "min-position", 0, "wait until the projection has seen the log up to this position")
	command.Flags().BoolVar(&f.all, "all", false, "read all pages")
	command.Flags().BoolVar(&f.count, "count", false, "print how many there are, and no document")
	command.Flags().BoolVar(&f.explain, "explain", false, "print how the database answers, and no document (operator)")
	command.Flags().StringVar(&f.tenant, "tenant", "", "with --explain: the name or id of the tenant whose documents are meant")
	flagsTogether(command, "explain", "tenant")
	exclusiveFlags(command, "all", "count", "explain")
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

// given returns a parameter, or nil for the zero value, which is left out of the request.
func given[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

// listDocuments requests a page. It returns the token of the next page, or "" after the last one.
func listDocuments(ctx context.Context, service *client.ClientWithResponses, name string, params *client.ListDocumentsParams) (client.DocumentList, string, error) {
	r, err := service.ListDocumentsWithResponse(ctx, name, params)
	if err != nil {
		return client.DocumentList{}, "", err
	}
	page, err := answered(r.JSON200, r.HTTPResponse, r.Body)
	return page, nextPage(r.HTTPResponse), err
}

func writeDocuments(ctx context.Context, service *client.ClientWithResponses, name string, f *documentsFlags, out, warn io.Writer) error {
	params := f.params()
	buffered := bufio.NewWriter(out)
	lines := json.NewEncoder(buffered)
	lines.SetEscapeHTML(false) // people read it
	for {
		page, next, err := listDocuments(ctx, service, name, params)
		if err != nil {
			return err
		}
		for _, warning := range page.Warnings {
			if params.PageToken == nil { // every page has the same count
				fmt.Fprintln(warn, "warning:", warning)
			}
		}
		for _, document := range page.Documents {
			if err := lines.Encode(document); err != nil {
				return err
			}
		}
		if err := buffered.Flush(); err != nil || next == "" || !f.all {
			return err
		}
		params.PageToken = &next
	}
}

func countDocuments(ctx context.Context, service *client.ClientWithResponses, name string, f *documentsFlags, out io.Writer) error {
	params, exact, one := f.params(), "exact", 1
	// The order and fields do not affect the count, but the service must still report mistakes in them.
	params.Count, params.PageSize = &exact, &one
	page, _, err := listDocuments(ctx, service, name, params)
	if err != nil {
		return err
	}
	if page.Count == nil {
		return errors.New("the service did not count: it is of an older release")
	}
	_, err = fmt.Fprintln(out, *page.Count)
	return err
}

func explainDocuments(ctx context.Context, service *client.ClientWithResponses, name string, f *documentsFlags, out io.Writer) error {
	tenant, err := findTenant(ctx, service, f.tenant)
	if err != nil {
		return err
	}
	params, explain := f.params(), true
	params.Explain, params.Tenant = &explain, &tenant.Id
	page, _, err := listDocuments(ctx, service, name, params)
	if err != nil {
		return err
	}
	if page.Explanation == nil {
		return errors.New("the service did not explain: it is of an older release")
	}
	var plan bytes.Buffer
	if len(page.Explanation.Plan) > 0 {
		if err := json.Indent(&plan, page.Explanation.Plan, "", "  "); err != nil {
			return fmt.Errorf("the plan: %w", err)
		}
		plan.WriteByte('\n')
	}
	_, err = fmt.Fprintf(out, "database %s:\n%s\n\n%s", page.Explanation.Database, page.Explanation.Statement, plan.Bytes())
	return err
}
