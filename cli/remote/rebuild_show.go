package remote

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func rebuildList(to *connection) *cobra.Command {
	return list(to, &cobra.Command{
		Use:   "list NAME",
		Short: "List a projection's rebuilds, the newest first",
		Args:  cobra.ExactArgs(1),
	}, rebuilds, table[client.Rebuild]{
		header: "ID\tBUILD\tSTATE\tEVENTS\tDOCUMENTS\tSTARTED\tBY",
		row: func(r client.Rebuild) []any {
			state := r.State
			if r.Paused {
				state += " (paused)"
			}
			return []any{r.Id, r.Build, state, fmt.Sprintf("%d/%d", r.EventsDone, r.EventsTotal), r.Documents, local(r.CreatedAt), r.By}
		},
	})
}

// rebuilds yields the rebuilds of the projection that the first argument names, the newest first.
func rebuilds(ctx context.Context, c *call) iter.Seq2[client.Rebuild, error] {
	return pages(func(*string) (*http.Response, error) { return c.ListRebuilds(ctx, c.args[0]) },
		func(answer client.RebuildList) []client.Rebuild { return answer.Rebuilds })
}

func rebuildShow(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME [ID]",
		Short: "Show a rebuild's progress, and how its documents differ from the live ones",
		Args:  cobra.RangeArgs(1, 2),
		RunE: to.run(func(ctx context.Context, c *call) error {
			id, err := rebuildID(ctx, c, newest())
			if err != nil {
				return err
			}
			rebuild, err := read[client.Rebuild](c.GetRebuild(ctx, c.args[0], id))
			if err != nil {
				return err
			}
			printRebuild(c.out, rebuild)
			return nil
		}),
	}
}

func rebuildFaulted(to *connection) *cobra.Command {
	return list(to, &cobra.Command{
		Use:   "faulted NAME [ID]",
		Short: "List the tenants that a rebuild of a shared projection has left behind (operator)",
		Long: `List the tenants that a rebuild of a shared projection has left on their old documents, and why. Without an id, it is the last rebuild
that was swapped in. Remove the causes (skip an event, put an upcaster, or change the definition), then rebuild for these tenants:

  manifold rebuild NAME --faulted`,
		Args: cobra.RangeArgs(1, 2),
	}, faultedTenants, table[client.TenantProgress]{
		header: "TENANT\tPOSITION\tREASON",
		row: func(t client.TenantProgress) []any {
			if t.Fault == nil {
				return []any{t.Tenant, "", ""}
			}
			return []any{t.Tenant, known(given(t.Fault.Position)), oneLine(t.Fault.Reason)}
		},
	})
}

// faultedTenants yields the tenants that keep their old documents after the rebuild in a command's arguments.
func faultedTenants(ctx context.Context, c *call) iter.Seq2[client.TenantProgress, error] {
	return func(yield func(client.TenantProgress, error) bool) {
		id, err := rebuildID(ctx, c, leavesBehind())
		if err != nil {
			yield(client.TenantProgress{}, err)
			return
		}
		for tenant, err := range pages(func(token *string) (*http.Response, error) {
			return c.ListRebuildTenants(ctx, c.args[0], id, &client.ListRebuildTenantsParams{Faulted: given(true), PageToken: token})
		}, func(page client.TenantProgressList) []client.TenantProgress { return page.Tenants }) {
			if !tenant.Swapped && !yield(tenant, err) {
				return
			}
		}
	}
}

func printRebuild(out *output, rebuild client.Rebuild) {
	out.printf("rebuild %s of %s, build %d: %s", rebuild.Id, rebuild.Projection, rebuild.Build, rebuild.State)
	if rebuild.Paused {
		out.printf(", paused")
	}
	out.printf("\n%d of %d events", rebuild.EventsDone, rebuild.EventsTotal)
	if rebuild.EventsPerSecond != nil {
		out.printf(", %.0f a second", *rebuild.EventsPerSecond)
	}
	if rebuild.SecondsLeft != nil {
		out.printf(", %s left", seconds(*rebuild.SecondsLeft).Round(time.Second))
	}
	out.printf("\n")
	if rebuild.Documents > 0 || rebuild.LiveDocuments > 0 {
		out.printf("%d documents; the live build had %d\n", rebuild.Documents, rebuild.LiveDocuments)
	}
	if rebuild.Error != "" {
		out.printf("%s\n", rebuild.Error)
	}
	printLoss(out, rebuild.Loss)
	printFaulted(out, rebuild)
	if rebuild.RollbackUntil != nil {
		out.printf("it can be rolled back until %s\n", local(*rebuild.RollbackUntil))
	}
	printDifference(out, rebuild.Difference)
}
