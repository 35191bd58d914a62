package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func rebuildList(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "list NAME",
		Short: "List a projection's rebuilds, the newest first",
		Args:  cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			list, err := rebuildsOf(command.Context(), service, args[0])
			if err != nil {
				return err
			}
			return writeTable(command.OutOrStdout(), "ID\tBUILD\tSTATE\tEVENTS\tDOCUMENTS\tSTARTED\tBY", list, func(r client.Rebuild) []any {
				state := r.State
				if r.Paused {
					state += " (paused)"
				}
				return []any{r.Id, r.Build, state, fmt.Sprintf("%d/%d", r.EventsDone, r.EventsTotal), r.Documents,
					r.CreatedAt.Local().Format(time.RFC3339), r.By}
			})
		}),
	}
}

func rebuildShow(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME [ID]",
		Short: "Show a rebuild's progress, and how its documents differ from the live ones",
		Args:  cobra.RangeArgs(1, 2),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			id, err := rebuildMeant(command.Context(), service, args, newest())
			if err != nil {
				return err
			}
			r, err := service.GetRebuildWithResponse(command.Context(), args[0], id)
			if err != nil {
				return err
			}
			rebuild, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			return showRebuild(rebuild, command.OutOrStdout())
		}),
	}
}

func rebuildFaulted(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "faulted NAME [ID]",
		Short: "List the tenants that a rebuild of a shared projection leaves on their old documents, and why (operator)",
		Long: `List the tenants that a rebuild of a shared projection leaves on their old documents, and why; without an id, the last one that was
swapped in. Once the cause is seen to (an event skipped, an upcaster put, the definition changed), rebuild for them:

  manifold rebuild NAME --faulted`,
		Args: cobra.RangeArgs(1, 2),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			faulted, err := faultedTenants(command.Context(), service, args)
			if err != nil {
				return err
			}
			return writeTable(command.OutOrStdout(), "TENANT\tPOSITION\tREASON", faulted, func(t client.TenantProgress) []any {
				if t.Fault == nil {
					return []any{t.Tenant, "", ""}
				}
				position := ""
				if t.Fault.Position > 0 {
					position = fmt.Sprint(t.Fault.Position)
				}
				return []any{t.Tenant, position, oneLine(t.Fault.Reason)}
			})
		}),
	}
}

// faultedTenants returns the tenants that keep their old documents after the rebuild in a command's arguments.
func faultedTenants(ctx context.Context, service *client.ClientWithResponses, args []string) ([]client.TenantProgress, error) {
	id, err := rebuildMeant(ctx, service, args, leavesBehind())
	if err != nil {
		return nil, err
	}
	all := pages(func(token *string) ([]client.TenantProgress, *http.Response, error) {
		r, err := service.ListRebuildTenantsWithResponse(ctx, args[0], id, &client.ListRebuildTenantsParams{Faulted: given(true), PageToken: token})
		if err != nil {
			return nil, nil, err
		}
		list, err := answered(r.JSON200, r.HTTPResponse, r.Body)
		return list.Tenants, r.HTTPResponse, err
	})
	var tenants []client.TenantProgress
	for tenant, err := range all {
		if err != nil {
			return nil, err
		}
		if !tenant.Swapped {
			tenants = append(tenants, tenant)
		}
	}
	return tenants, nil
}

func showRebuild(rebuild client.Rebuild, out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "rebuild %s of %s, build %d: %s", rebuild.Id, rebuild.Projection, rebuild.Build, rebuild.State)
	if rebuild.Paused {
		text.WriteString(", paused")
	}
	fmt.Fprintf(&text, "\n%d of %d events", rebuild.EventsDone, rebuild.EventsTotal)
	if rebuild.EventsPerSecond != nil {
		fmt.Fprintf(&text, ", %.0f a second", *rebuild.EventsPerSecond)
	}
	if rebuild.SecondsLeft != nil {
		fmt.Fprintf(&text, ", %s left", time.Duration(*rebuild.SecondsLeft*float64(time.Second)).Round(time.Second))
	}
	text.WriteByte('\n')
	if rebuild.Documents > 0 || rebuild.LiveDocuments > 0 {
		fmt.Fprintf(&text, "%d documents; the live build had %d\n", rebuild.Documents, rebuild.LiveDocuments)
	}
	if rebuild.Error != "" {
		fmt.Fprintf(&text, "%s\n", rebuild.Error)
	}
	if err := tellLoss(rebuild.Loss, &text); err != nil {
		return err
	}
	if err := tellFaulted(rebuild, &text); err != nil {
		return err
	}
	if rebuild.RollbackUntil != nil {
		fmt.Fprintf(&text, "it can be rolled back until %s\n", rebuild.RollbackUntil.Local().Format(time.RFC3339))
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return err
	}
	return tellDifference(rebuild, out)
}
