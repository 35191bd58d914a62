package cli

import (
	"fmt"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func lagCommand() *cobra.Command {
	to, asJSON := &connection{}, false
	command := &cobra.Command{
		Use:   "lag",
		Short: "Show how far every group and projection is behind",
		Long: `Show how far every group and projection of a tenant is behind its log: how many positions lie between, whatever of them it is
interested in, and how long ago the first of these was recorded.`,
		Args: cobra.NoArgs,
		RunE: to.withService(func(command *cobra.Command, _ []string, service *client.ClientWithResponses) error {
			r, err := service.GetLagWithResponse(command.Context())
			if err != nil {
				return err
			}
			lag, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			if asJSON {
				for _, consumer := range lag.Consumers {
					if err := writeJSON(command.OutOrStdout(), consumer); err != nil {
						return err
					}
				}
				return nil
			}
			t := tabwriter.NewWriter(command.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "KIND\tNAME\tPARTITION\tPOSITION\tPOSITIONS BEHIND\tSECONDS BEHIND\tIN FLIGHT\tRETRYING\tDEAD LETTERS\tFAULT")
			for _, c := range lag.Consumers {
				fault, seconds := "", ""
				if orZero(c.Faulted) {
					fault = "stands still"
				}
				if c.Error != "" {
					fault = oneLine(c.Error)
				}
				if c.Seconds != nil { // unknown if the position is
					seconds = strconv.FormatFloat(*c.Seconds, 'f', 1, 64)
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Kind, c.Name, known(c.Partition), known(c.Position), known(c.Events), seconds,
					known(c.InFlight), known(c.Retrying), known(c.DeadLetters), fault)
			}
			return t.Flush()
		}),
	}
	to.bind(command, "MANIFOLD_KEY")
	jsonFlag(command, &asJSON, "the groups and projections")
	return command
}

// known formats a number for a table, or "" if it is missing.
func known[T int | int64](number *T) string {
	if number == nil {
		return ""
	}
	return strconv.FormatInt(int64(*number), 10)
}
