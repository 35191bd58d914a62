package cli

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func rebuildRollback(to *connection) *cobra.Command {
	loss := false
	command := rebuildOrder(to, "rollback", "Go back to the documents from before a rebuild, while they are kept", true, swappedIn(), func(ctx context.Context, s *client.ClientWithResponses, name, id string) (client.Rebuild, error) {
		r, err := s.RollbackRebuildWithResponse(ctx, name, id, &client.RollbackRebuildParams{AcceptLoss: given(loss)})
		if err != nil {
			return client.Rebuild{}, err
		}
		return answered(r.JSON202, r.HTTPResponse, r.Body)
	})
	acceptLoss(command, &loss)
	return command
}

// meant selects the rebuild for a command without a rebuild id: the newest one that matches. none is the error if
// none matches.
type meant struct {
	fits func(client.Rebuild) bool
	none string // %s is replaced with the projection's name
}

func underWay() meant {
	return meant{func(r client.Rebuild) bool { return r.EndedAt == nil }, "no rebuild of %s is under way"}
}

func swappedIn() meant {
	return meant{func(r client.Rebuild) bool { return r.State == "swapped" }, "no rebuild of %s was swapped in that could be rolled back"}
}

// leavesBehind selects the newest rebuild of all tenants that was swapped in. It lists which tenants still have old
// documents.
func leavesBehind() meant {
	return meant{func(r client.Rebuild) bool { return r.State == "swapped" && len(r.Tenants) == 0 }, "no rebuild of %s was swapped in"}
}

func newest() meant {
	return meant{func(client.Rebuild) bool { return true }, "%s was never rebuilt"}
}

// order makes one request to the service about a rebuild.
type order func(ctx context.Context, service *client.ClientWithResponses, name, id string) (client.Rebuild, error)

// rebuildOrder returns a command that makes a request about a rebuild. If follow is set, the command then follows the
// rebuild.
func rebuildOrder(to *connection, use, short string, follow bool, which meant, do order) *cobra.Command {
	detach := false
	command := &cobra.Command{
		Use:   use + " NAME [ID]",
		Short: short,
		Args:  cobra.RangeArgs(1, 2),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			id, err := rebuildMeant(command.Context(), service, args, which)
			if err != nil {
				return err
			}
			rebuild, err := do(command.Context(), service, args[0], id)
			if err != nil {
				return err
			}
			if follow {
				return followRebuild(command.Context(), service, rebuild, detach, command.OutOrStdout())
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "%s: rebuild %s was asked to %s\n", rebuild.Projection, rebuild.Id, use)
			return err
		}),
	}
	if follow {
		command.Flags().BoolVar(&detach, "detach", false, "do not wait for the end")
	}
	return command
}

// rebuildMeant returns the second argument of a command as the rebuild's id. Without one, it returns the id of the
// newest rebuild that matches.
func rebuildMeant(ctx context.Context, service *client.ClientWithResponses, args []string, which meant) (string, error) {
	if len(args) > 1 {
		return args[1], nil
	}
	list, err := rebuildsOf(ctx, service, args[0])
	if err != nil {
		return "", err
	}
	for _, r := range list {
		if which.fits(r) {
			return r.Id, nil
		}
	}
	return "", fmt.Errorf(which.none+"; `manifold rebuild list %[1]s` shows all", args[0])
}

func rebuildsOf(ctx context.Context, service *client.ClientWithResponses, name string) ([]client.Rebuild, error) {
	r, err := service.ListRebuildsWithResponse(ctx, name)
	if err != nil {
		return nil, err
	}
	if r.StatusCode() != http.StatusOK {
		return nil, refusal(r.Status(), r.Body)
	}
	list, err := answered(r.JSON200, r.HTTPResponse, r.Body)
	return list.Rebuilds, err
}
