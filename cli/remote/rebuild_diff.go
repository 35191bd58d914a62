package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// rebuildDiff is `manifold rebuild diff`.
func rebuildDiff(to *connection) *cobra.Command {
	tenant, after := "", ""
	command := &cobra.Command{
		Use:   "diff NAME [ID]",
		Short: "List all documents that a rebuild would change",
		Long: `Compare the documents of a rebuild that awaits approval with the live ones, as they are now, and list
those that differ: new (+), gone (-), changed (~), and unsettled (?). Events have changed an unsettled
document so recently that perhaps only one of the builds has seen them. -o ndjson writes a line for
each document, with both versions.`,
		Example: `  manifold rebuild orders --definition orders.yaml --approve manual --detach
  manifold rebuild diff orders
  manifold rebuild diff orders -o ndjson > difference.ndjson`,
		Args: cobra.RangeArgs(1, 2),
		RunE: to.run(func(ctx context.Context, c *call) error {
			id, err := rebuildID(ctx, c, underWay())
			if err != nil {
				return err
			}
			params := client.ExportDifferenceParams{After: given(after)}
			if tenant != "" {
				found, err := findTenant(ctx, c, tenant)
				if err != nil {
					return err
				}
				params.Tenant = &found.Id
			}
			different := differentDocuments(ctx, c, id, &params)
			if c.asJSON {
				return printJSON(c.out, different)
			}
			return printDifferent(c.out, different)
		}),
	}
	command.Flags().StringVar(&tenant, "tenant", "", "of a shared projection, only the documents of the tenant with this name or id (operator)")
	command.Flags().StringVar(&after, "after", "", "continue after this document, as the message of a broken export names it: TENANT/ID")
	return withJSON("documents", command)
}

// differentDocuments yields the documents that a rebuild would change. It holds one of them at a time.
func differentDocuments(ctx context.Context, c *call, id string, params *client.ExportDifferenceParams) iter.Seq2[client.DifferentDocument, error] {
	return func(yield func(client.DifferentDocument, error) bool) {
		response, err := c.ExportDifference(ctx, c.args[0], id, params)
		if err == nil && response.StatusCode != 200 {
			err = done(response, nil)
		}
		if err != nil {
			yield(client.DifferentDocument{}, err)
			return
		}
		defer response.Body.Close()
		last := ""
		if params.After != nil {
			last = *params.After
		}
		for lines := bufio.NewReaderSize(response.Body, 64<<10); ; {
			line, err := lines.ReadBytes('\n')
			if errors.Is(err, io.EOF) && len(line) == 0 {
				return
			}
			var d client.DifferentDocument
			if err == nil && len(bytes.TrimSpace(line)) == 0 {
				continue // keeps the connection alive
			}
			if err == nil {
				err = json.Unmarshal(line, &d)
			}
			if err != nil {
				err = fmt.Errorf("the difference was cut off: %w", err)
				if last != "" {
					err = fmt.Errorf("%w; continue with --after '%s'", err, last)
				}
				yield(d, err)
				return
			}
			last = d.Tenant + "/" + d.Id
			if !yield(d, nil) {
				return
			}
		}
	}
}

// printDifferent prints a line for each document, and their number.
func printDifferent(out *output, different iter.Seq2[client.DifferentDocument, error]) error {
	marks := map[string]string{"new": "+", "gone": "-", "changed": "~", "unsettled": "?"}
	kinds := map[string]int{}
	for d, err := range different {
		if err != nil {
			return err
		}
		kinds[d.Kind]++
		line := fmt.Sprintf("%s %s (tenant %s)", marks[d.Kind], printable(d.Id), d.Tenant)
		if len(d.Fields) > 0 {
			line += ": " + printable(strings.Join(d.Fields, ", "))
		}
		if err := out.printf("%s\n", line); err != nil {
			return err
		}
	}
	return out.printf("%d documents are new, %d are gone, %d are changed, %d are unsettled\n", kinds["new"], kinds["gone"], kinds["changed"], kinds["unsettled"])
}
