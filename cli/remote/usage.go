package remote

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func usageCommand() *cobra.Command {
	to, period, asCSV, byDay := &connection{}, period{}, false, false
	command := &cobra.Command{
		Use:   "usage",
		Short: "Show how many events and bytes each tenant has appended",
		Long: `Show how many events each tenant has appended, and the bytes of their data and metadata, by the UTC days on which they were
recorded. The numbers come from the shared projection "usage", and are up to date within seconds.

It needs the operator's key.`,
		Args:             cobra.NoArgs,
		PersistentPreRun: func(*cobra.Command, []string) { to.asOperator() },
		RunE: to.run(func(ctx context.Context, c *call) error {
			if err := period.check(); err != nil {
				return err
			}
			names := make(map[string]string) // of tenants, by id
			for tenant, err := range tenants(ctx, c) {
				if err != nil {
					return err
				}
				names[tenant.Id] = tenant.Name
			}
			rows, err := readUsage(ctx, c, period, byDay)
			if err != nil {
				return err
			}
			if asCSV {
				return writeUsageCSV(c.out, rows, names, byDay)
			}
			return writeUsage(c.out, rows, names, byDay)
		}),
	}
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	command.Flags().StringVar(&period.from, "from", "", "the first day, such as 2026-03-01 (default: the first with events)")
	command.Flags().StringVar(&period.to, "to", "", "the last day, inclusive (default: today)")
	command.Flags().BoolVar(&byDay, "by-day", false, "one line per day")
	command.Flags().BoolVar(&asCSV, "csv", false, "write CSV, for a spreadsheet or a program")
	command.AddCommand(usageDays(), usageExport(to))
	return command
}

// period is a range of days as YYYY-MM-DD, both included. An empty value means no bound.
type period struct{ from, to string }

func (p period) check() error {
	for flag, day := range map[string]string{"--from": p.from, "--to": p.to} {
		if _, err := time.Parse(time.DateOnly, day); day != "" && err != nil {
			return fmt.Errorf("%s: %q is not a day such as 2026-03-01", flag, day)
		}
	}
	if p.from != "" && p.to != "" && p.from > p.to {
		return fmt.Errorf("--from %s is after --to %s", p.from, p.to)
	}
	return nil
}

// filter returns the period as an expression over a document of `usage`.
func (p period) filter() string {
	var parts []string
	if p.from != "" {
		parts = append(parts, fmt.Sprintf("doc.day >= %q", p.from))
	}
	if p.to != "" {
		parts = append(parts, fmt.Sprintf("doc.day <= %q", p.to))
	}
	return strings.Join(parts, " && ")
}

// tenantUsage is what a tenant has appended on one day, or in total if Day is empty.
type tenantUsage struct {
	Tenant string
	Day    string
	Events int64
	Bytes  int64
}

// readUsage returns a row for each tenant, or for each day of each tenant, sorted by tenant id and day.
func readUsage(ctx context.Context, c *call, period period, byDay bool) ([]tenantUsage, error) {
	params := client.ListAllDocumentsParams{PageSize: new(pageSize), Filter: given(period.filter())}
	var rows []tenantUsage
	for document, err := range pages(func(token *string) (*http.Response, error) {
		params.PageToken = token
		return c.ListAllDocuments(ctx, "usage", &params)
	}, func(page client.TenantDocumentList) []client.TenantDocument { return page.Documents }) {
		if err != nil {
			return nil, err
		}
		row := tenantUsage{Tenant: document.Tenant}
		if err := json.Unmarshal(document.Document, &row); err != nil {
			return nil, fmt.Errorf("the usage of tenant %s on %s: %w", document.Tenant, document.Id, err)
		}
		if !byDay {
			row.Day = ""
		}
		if last := len(rows) - 1; !byDay && last >= 0 && rows[last].Tenant == row.Tenant {
			rows[last].Events += row.Events
			rows[last].Bytes += row.Bytes
			continue
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func writeUsage(out io.Writer, rows []tenantUsage, names map[string]string, byDay bool) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	day := func(text string) string {
		if !byDay {
			return ""
		}
		return text + "\t"
	}
	fmt.Fprintf(t, "TENANT\tNAME\t%sEVENTS\tBYTES\n", day("DAY"))
	var events, bytes int64
	for _, row := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s%d\t%d\n", row.Tenant, names[row.Tenant], day(row.Day), row.Events, row.Bytes)
		events += row.Events
		bytes += row.Bytes
	}
	fmt.Fprintf(t, "all\t\t%s%d\t%d\n", day(""), events, bytes)
	return t.Flush()
}

func writeUsageCSV(out io.Writer, rows []tenantUsage, names map[string]string, byDay bool) error {
	w := csv.NewWriter(out)
	record := func(tenant, name, day, events, bytes string) {
		fields := []string{tenant, name, events, bytes}
		if byDay {
			fields = []string{tenant, name, day, events, bytes}
		}
		_ = w.Write(fields) // the writer returns its error at the end
	}
	record("tenant", "name", "day", "events", "bytes")
	for _, row := range rows {
		record(row.Tenant, names[row.Tenant], row.Day, strconv.FormatInt(row.Events, 10), strconv.FormatInt(row.Bytes, 10))
	}
	w.Flush()
	return w.Error()
}
