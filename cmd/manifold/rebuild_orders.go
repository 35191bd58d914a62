package main

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

// meant says which rebuild is meant where a command is not given the id of one: the newest that fits. none is what is said
// where there is none.
type meant struct {
	fits func(client.Rebuild) bool
	none string // the projection's name goes in for %s
}

func underWay() meant {
	return meant{func(r client.Rebuild) bool { return r.EndedAt == nil }, "no rebuild of %s is under way"}
}

func swappedIn() meant {
	return meant{func(r client.Rebuild) bool { return r.State == "swapped" }, "no rebuild of %s was swapped in that could be rolled back"}
}

// leavesBehind is the last rebuild for all that was swapped in: its tenants are those that are left behind now.
func leavesBehind() meant {
	return meant{func(r client.Rebuild) bool { return r.State == "swapped" && len(r.Tenants) == 0 }, "no rebuild of %s was swapped in"}
}

func newest() meant {
	return meant{func(client.Rebuild) bool { return true }, "%s was never rebuilt"}
}

// order asks the service to do something with a rebuild.
type order func(ctx context.Context, service *client.ClientWithResponses, name, id string) (client.Rebuild, error)

// rebuildOrder is a command that does something with a rebuild, and then, where follow is set, follows it.
func rebuildOrder(to *connection, use, short string, follow bool, which meant, do order) *cobra.Command {
	detach := false
	command := &cobra.Command{
		Use:   use + " NAME [ID]",
		Short: short,
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(command *cobra.Command, args []string) error {
			service, err := to.open()
			if err != nil {
				return err
			}
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
		},
	}
	if follow {
		command.Flags().BoolVar(&detach, "detach", false, "do not wait for the end")
	}
	return command
}

// rebuildMeant is the id of the rebuild that a command's arguments name: its second one, or that of the newest rebuild that
// can be meant.
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
