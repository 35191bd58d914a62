package remote

import (
	"context"
	"iter"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func lagCommand() *cobra.Command {
	to := &connection{}
	command := list(to, &cobra.Command{
		Use:   "lag",
		Short: "Show how far every group and projection lags behind",
		Long: `Show how far every group and projection of a tenant lags behind its log: by how many positions, including those of events that it
does not select, and how long ago the first of these was recorded.`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, c *call) iter.Seq2[client.Lag, error] {
		return pages(func(*string) (*http.Response, error) { return c.GetLag(ctx) },
			func(answer client.LagList) []client.Lag { return answer.Consumers })
	}, table[client.Lag]{
		isFixed: true,
		header:  "KIND\tNAME\tPARTITION\tPOSITION\tPOSITIONS BEHIND\tSECONDS BEHIND\tIN FLIGHT\tRETRYING\tDEAD LETTERS\tFAULT",
		row: func(lag client.Lag) []any {
			fault, seconds := "", ""
			if orZero(lag.Faulted) {
				fault = "stopped"
			}
			if lag.Error != "" {
				fault = oneLine(lag.Error)
			}
			if lag.Seconds != nil { // unknown while the position is unknown
				seconds = strconv.FormatFloat(*lag.Seconds, 'f', 1, 64)
			}
			return []any{lag.Kind, lag.Name, known(lag.Partition), known(lag.Position), known(lag.Events), seconds,
				known(lag.InFlight), known(lag.Retrying), known(lag.DeadLetters), fault}
		},
	})
	to.bind(command, "MANIFOLD_KEY")
	return withJSON("the groups and projections", command)
}
