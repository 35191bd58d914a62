package remote

import (
	"context"
	"encoding/csv"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func totalsCommand() *cobra.Command {
	to := &connection{}
	params, asCSV := client.GetTotalsParams{}, false
	var per, prefix string
	command := to.onBehalf(&cobra.Command{
		Use:   "totals PROJECTION",
		Short: "Show the sums over all tenants' documents of a shared projection",
		Long: `Show the sums over the documents of a shared projection whose definition has "totals": for each tenant, for each key (such as
a day) over all tenants, or for each key of each tenant. The last line of the table is over all of them.

It needs the operator's key.`,
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, c *call, tenant *string) error {
		params.Per, params.KeyPrefix, params.Tenant, params.PageSize = given(per), given(prefix), tenant, new(pageSize)
		var first client.TotalsPage
		rows := func() iter.Seq2[client.Total, error] {
			return pages(func(token *string) (*http.Response, error) {
				params.PageToken = token
				return c.GetTotals(ctx, c.args[0], &params)
			}, func(page client.TotalsPage) []client.Total {
				if first.Sum == nil {
					first = page
				}
				return page.Totals
			})
		}
		if c.asJSON {
			return printJSON(c.out, rows())
		}
		all, err := collect(rows())
		if err != nil {
			return err
		}
		if asCSV {
			return writeTotalsCSV(c.out, first, all)
		}
		return printTotals(c, first, all, per)
	})
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	command.PersistentPreRun = func(*cobra.Command, []string) { to.asOperator() }
	command.Flags().StringVar(&per, "per", "", "one line for each tenant (default), key, or both")
	command.Flags().StringVar(&prefix, "key-prefix", "", "only documents whose key begins with this, such as 2026-03")
	command.Flags().BoolVar(&asCSV, "csv", false, "write CSV, for a spreadsheet or a program")
	withJSON("the totals", command)
	exclusiveFlags(command, "csv", "json", "output")
	return command
}

// totalsCells returns the cells of a row after tenant and key.
func totalsCells(fields []string, total client.Total) (cells []string) {
	cells = []string{strconv.FormatInt(total.Documents, 10)}
	for _, field := range fields {
		cells = append(cells, total.Sums[field])
	}
	var skipped int64
	for _, n := range total.Skipped {
		skipped += n
	}
	return append(cells, strconv.FormatInt(skipped, 10))
}

// printTotals prints a table, and says whether documents are newer, and whether sums by key lack some.
func printTotals(c *call, page client.TotalsPage, all []client.Total, per string) error {
	header := []string{"DOCUMENTS"}
	for _, field := range page.Sum {
		header = append(header, strings.ToUpper(field))
	}
	header = append(header, "NOT NUMBERS", "POSITION", "COMPUTED")
	keyed := per == "key" || per == "both"
	lead := func(tenant, key string) (cells []string) {
		if per != "key" {
			cells = append(cells, tenant)
		}
		if keyed {
			cells = append(cells, key)
		}
		return cells
	}
	page.All.TenantName, page.All.Key = "all", "all"
	if per == "both" {
		page.All.Key = ""
	}
	err := table[client.Total]{
		header: strings.Join(append(lead("TENANT", "KEY"), header...), "\t"),
		row: func(total client.Total) (cells []any) {
			computed := ""
			if total.ComputedAt != nil {
				computed = local(*total.ComputedAt)
			}
			if total.KeysDropped {
				computed += ", keys dropped"
			}
			for _, cell := range slices.Concat(lead(total.TenantName, oneLine(total.Key)), totalsCells(page.Sum, total)) {
				cells = append(cells, cell)
			}
			return append(cells, known(total.Position), computed)
		},
	}.print(c.out, each(append(all, page.All)))
	switch {
	case err != nil:
	case page.Pending == nil:
		err = c.out.printf("a database of documents does not answer, so some totals may be older than the documents\n")
	case *page.Pending > 0:
		err = c.out.printf("tenants with newer documents, whose totals follow: %d\n", *page.Pending)
	}
	if err == nil && page.KeysDropped > 0 {
		err = c.out.printf("tenants with too many or too long keys, whose documents count without a key: %d\n", page.KeysDropped)
	}
	return err
}

// writeTotalsCSV writes a line for each row. The columns do not depend on the flags, so that programs can rely on them.
func writeTotalsCSV(out *output, page client.TotalsPage, all []client.Total) error {
	writer := csv.NewWriter(out)
	header := slices.Concat([]string{"tenant", "name", "key", "documents"}, page.Sum, []string{"notNumbers", "position", "computedAt"})
	if err := writer.Write(header); err != nil {
		return err
	}
	for _, total := range all {
		computed := ""
		if total.ComputedAt != nil {
			computed = total.ComputedAt.UTC().Format(time.RFC3339)
		}
		row := slices.Concat([]string{total.Tenant, total.TenantName, total.Key}, totalsCells(page.Sum, total), []string{known(total.Position), computed})
		if err := writer.Write(row); err != nil {
			return err
		}
	}
	writer.Flush()
	return writer.Error()
}
