package remote

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func reportsCommand() *cobra.Command {
	to := &connection{}
	command := &cobra.Command{
		Use:   "reports",
		Short: "Manage reports: events about dead letters, parked documents, and what stops or lags",
		Long: `Manage a tenant's reports. While they are enabled, the service appends events to the tenant's log: about dead letters, parked
documents, stopped projections, failing webhooks and lag. These commands need the scope tenant:admin.`,
		Args: cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY")
	var maxLag time.Duration
	enable := reportsCall(to, "enable", "Enable reports", func(ctx context.Context, c *call) (*http.Response, error) {
		if maxLag%time.Second != 0 {
			return nil, fmt.Errorf("--max-lag %s is not a whole number of seconds", maxLag)
		}
		return c.PutReports(ctx, client.ReportsRequest{Enabled: true, MaxLag: int64(maxLag / time.Second)})
	})
	enable.Flags().DurationVar(&maxLag, "max-lag", 0, "also report projections and groups that lag more than this, such as 10m")
	command.AddCommand(
		reportsCall(to, "show", "Show whether reports are enabled", func(ctx context.Context, c *call) (*http.Response, error) {
			return c.GetReports(ctx)
		}),
		enable,
		reportsCall(to, "disable", "Disable reports", func(ctx context.Context, c *call) (*http.Response, error) {
			return c.PutReports(ctx, client.ReportsRequest{Enabled: false})
		}),
	)
	return command
}

// reportsCall returns a command that makes a call and prints the settings in its answer.
func reportsCall(to *connection, use, short string, do func(ctx context.Context, c *call) (*http.Response, error)) *cobra.Command {
	return withJSON("the settings", &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: to.run(func(ctx context.Context, c *call) error {
			reports, err := read[client.Reports](do(ctx, c))
			if err != nil {
				return err
			}
			if c.asJSON {
				return c.out.json(reports)
			}
			if !reports.Enabled {
				return c.out.printf("reports are disabled\n")
			}
			c.out.printf("reports are enabled%s\n", at(" since ", reports.Since))
			if reports.MaxLag > 0 {
				c.out.printf("lag is reported from %s on\n", time.Duration(reports.MaxLag)*time.Second)
			}
			return nil
		}),
	})
}
