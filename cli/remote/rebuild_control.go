package remote

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// selector selects the rebuild for a command without a rebuild's id: the newest one that matches. none is the error if
// none matches.
type selector struct {
	matches func(client.Rebuild) bool
	none    string // %s is replaced with the projection's name
}

func underWay() selector {
	return selector{func(r client.Rebuild) bool { return r.EndedAt == nil }, "no rebuild of %s is under way"}
}

func swappedIn() selector {
	return selector{func(r client.Rebuild) bool { return r.State == "swapped" }, "no rebuild of %s was swapped in that could be rolled back"}
}

// leavesBehind selects the newest rebuild of all tenants that was swapped in. It lists which tenants still have old
// documents.
func leavesBehind() selector {
	return selector{func(r client.Rebuild) bool { return r.State == "swapped" && len(r.Tenants) == 0 }, "no rebuild of %s was swapped in"}
}

func newest() selector {
	return selector{func(client.Rebuild) bool { return true }, "%s was never rebuilt"}
}

// rebuildID returns the second argument of a command as the rebuild's id. Without one, it returns the id of the newest
// rebuild that matches.
func rebuildID(ctx context.Context, c *call, which selector) (string, error) {
	if len(c.args) > 1 {
		return c.args[1], nil
	}
	for r, err := range rebuilds(ctx, c) {
		if err != nil {
			return "", err
		}
		if which.matches(r) {
			return r.Id, nil
		}
	}
	return "", fmt.Errorf(which.none+"; `manifold rebuild list %[1]s` shows all", c.args[0])
}

// Whether a command follows the rebuild after its request.
const (
	follow      = true
	doNotFollow = false
)

// rebuildOrder returns a command that calls an operation on a rebuild.
func rebuildOrder(to *connection, use, short string, followed bool, which selector,
	operation func(service *client.Client, ctx context.Context, name, id string, editors ...client.RequestEditorFn) (*http.Response, error)) *cobra.Command {
	detach := false
	command := &cobra.Command{
		Use:   use + " NAME [ID]",
		Short: short,
		Args:  cobra.RangeArgs(1, 2),
		RunE: to.run(func(ctx context.Context, c *call) error {
			id, err := rebuildID(ctx, c, which)
			if err != nil {
				return err
			}
			rebuild, err := read[client.Rebuild](operation(c.Client, ctx, c.args[0], id))
			if err != nil {
				return err
			}
			if followed {
				return followRebuild(ctx, c, rebuild, detach)
			}
			return c.out.printf("%s: rebuild %s was asked to %s\n", rebuild.Projection, rebuild.Id, use)
		}),
	}
	if followed {
		command.Flags().BoolVar(&detach, "detach", false, "do not wait for the end")
	}
	return command
}

func rebuildRollback(to *connection) *cobra.Command {
	loss := false
	command := rebuildOrder(to, "rollback", "Return to the documents from before a rebuild, while they are kept", follow, swappedIn(),
		func(service *client.Client, ctx context.Context, name, id string, editors ...client.RequestEditorFn) (*http.Response, error) {
			return service.RollbackRebuild(ctx, name, id, &client.RollbackRebuildParams{AcceptLoss: given(loss)}, editors...)
		})
	acceptLoss(command, &loss)
	return command
}
