package remote

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func lagCommand() *cobra.Command {
	to := &connection{}
	var all bool
	var behind time.Duration
	command := to.onBehalf(&cobra.Command{
		Use:   "lag",
		Short: "Show how far every group and projection lags behind",
		Long: `Show how far every group and projection of a tenant lags behind its log: by how many positions, including those of events that it
does not select, and how long ago the first of these was recorded.

With the operator's key, --all-tenants shows those of all tenants, and --behind=1m only what needs attention: consumers that lag
by a minute or more, are stopped, have dead letters, or are at an unknown position.`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, c *call, tenant *string) error {
		switch {
		case !all && c.changed("behind"):
			return errors.New("--behind needs --all-tenants")
		case all:
			none := "consumers"
			if behind > 0 {
				none += " that need attention"
			}
			return printAllLag(c, allLag(ctx, c, behind), none)
		}
		consumers := pages(func(*string) (*http.Response, error) { return c.GetLag(ctx, &client.GetLagParams{Tenant: tenant}) },
			func(answer client.LagList) []client.Lag { return answer.Consumers })
		if c.asJSON {
			return printJSON(c.out, consumers)
		}
		return table[client.Lag]{none: "consumers", header: lagHeader, row: lagRow}.print(c.out, consumers)
	})
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	command.PersistentPreRun = func(*cobra.Command, []string) {
		if all {
			to.asOperator()
		}
	}
	command.Flags().BoolVar(&all, "all-tenants", false, "with the operator's key: those of all tenants")
	command.Flags().DurationVar(&behind, "behind", 0, "with --all-tenants: only what needs attention, such as 1m")
	exclusiveFlags(command, "all-tenants", "tenant")
	return withJSON("the groups and projections", command)
}

const lagHeader = "KIND\tNAME\tPARTITION\tPOSITION\tPOSITIONS BEHIND\tSECONDS BEHIND\tIN FLIGHT\tRETRYING\tDEAD LETTERS\tFAULT"

func lagRow(lag client.Lag) []any {
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
}

// tenantLag is the lag of a consumer, with its tenant.
type tenantLag struct {
	Tenant     string `json:"tenant"`
	TenantName string `json:"tenantName"`
	client.Lag
}

// allLag yields the lag of all tenants' consumers, or of those that need attention.
func allLag(ctx context.Context, c *call, behind time.Duration) iter.Seq2[tenantLag, error] {
	params := client.GetAllLagParams{}
	if c.changed("behind") {
		params.Behind = new(int(behind.Seconds()))
	}
	return pages(func(token *string) (*http.Response, error) {
		params.PageToken = token
		return c.GetAllLag(ctx, &params)
	}, func(page client.TenantLagList) (all []tenantLag) {
		for _, tenant := range page.Tenants {
			if tenant.Error != "" {
				all = append(all, tenantLag{tenant.Tenant, tenant.Name, client.Lag{Error: tenant.Error}})
			}
			for _, lag := range tenant.Consumers {
				all = append(all, tenantLag{tenant.Tenant, tenant.Name, lag})
			}
		}
		return all
	})
}

func printAllLag(c *call, consumers iter.Seq2[tenantLag, error], none string) error {
	if c.asJSON {
		return printJSON(c.out, consumers)
	}
	return table[tenantLag]{
		none:   none,
		header: "TENANT\t" + lagHeader,
		row:    func(lag tenantLag) []any { return append([]any{lag.TenantName}, lagRow(lag.Lag)...) },
	}.print(c.out, consumers)
}
