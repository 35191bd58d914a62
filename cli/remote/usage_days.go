package remote

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// usageDays is `manifold usage days`.
func usageDays() *cobra.Command {
	to, of := &connection{}, period{}
	command := withJSON("the days", &cobra.Command{
		Use:   "days",
		Short: "Show the daily usage of the key's tenant, with a key that has the scope tenant:admin",
		Args:  cobra.NoArgs,
		// The parent's acts as operator.
		PersistentPreRun: func(*cobra.Command, []string) {},
		RunE: to.run(func(ctx context.Context, c *call) error {
			if err := of.check(); err != nil {
				return err
			}
			list, err := read[client.UsageList](c.GetUsage(ctx, &client.GetUsageParams{From: given(of.from), To: given(of.to)}))
			if err != nil {
				return err
			}
			if c.asJSON {
				for _, day := range list.Days {
					if err := c.out.json(day); err != nil {
						return err
					}
				}
				return nil
			}
			t := table[client.Usage]{
				none:   "days with usage",
				header: "DAY\tEVENTS\tBYTES\tDOCUMENTS\tDELIVERIES\tEXPRESSION STEPS",
				row: func(u client.Usage) []any {
					return []any{u.Day, u.Events, u.Bytes, u.Documents, u.Deliveries, u.ExpressionSteps}
				},
			}
			return t.print(c.out, func(yield func(client.Usage, error) bool) {
				for _, day := range list.Days {
					if !yield(day, nil) {
						return
					}
				}
			})
		}),
	})
	to.bind(command, "MANIFOLD_KEY")
	of.bind(command)
	return command
}

// usageExport is `manifold usage export`.
func usageExport(to *connection) *cobra.Command {
	of := period{}
	command := &cobra.Command{
		Use:   "export",
		Short: "Write the daily usage of all tenants as lines of JSON, for billing",
		Args:  cobra.NoArgs,
		RunE: to.run(func(ctx context.Context, c *call) error {
			if err := of.check(); err != nil {
				return err
			}
			response, err := c.ExportUsage(ctx, &client.ExportUsageParams{From: given(of.from), To: given(of.to)})
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if response.StatusCode != 200 {
				return done(response, nil)
			}
			if _, err := io.Copy(c.out, response.Body); err != nil {
				return fmt.Errorf("the export was cut off: %w", err)
			}
			return c.out.err
		}),
	}
	of.bind(command)
	return command
}

func (p *period) bind(command *cobra.Command) {
	command.Flags().StringVar(&p.from, "from", "", "the first day, such as 2026-03-01 (default: 30 days before the last)")
	command.Flags().StringVar(&p.to, "to", "", "the last day, inclusive (default: today)")
}
