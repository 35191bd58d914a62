package remote

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func projectionCommand() *cobra.Command {
	to := &connection{}
	command := &cobra.Command{
		Use:   "projection",
		Short: "Manage projections, read their documents, and resolve faults",
		Long: `Manage a tenant's projections; with the operator's key, apply, list and remove the shared ones. To resolve a tenant's faults, the
operator names the tenant with --tenant.`,
		Args: cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	command.AddCommand(projectionApply(to), projectionList(to), projectionState(to), projectionVersions(to), projectionPreview(to), projectionDocuments(to),
		removal(to, "remove NAME", "Remove a projection with its documents", "the projection's documents", (*client.Client).DeleteProjection),
		projectionRetry(to), projectionSkip(to), projectionSkipped(to), projectionUnskip(to), projectionParked(to), projectionReplay(to), projectionDiscard(to))
	completeProjections(to, command)
	return command
}

func projectionApply(to *connection) *cobra.Command {
	detach, loss := false, false
	command := &cobra.Command{
		Use:   "apply FILE|-",
		Short: "Create a projection, or change it by a rebuild",
		Long: `Create the projection that a YAML or JSON file defines. An existing projection whose definition differs is rebuilt: its current
documents serve until the new ones are ready.`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			name, definition, err := readDefinition(c.args[0], c.in)
			if err != nil {
				return err
			}
			result, rebuild, err := putProjection(ctx, c, name, definition, &client.PutProjectionParams{AcceptLoss: given(loss)})
			switch {
			case err != nil:
				return err
			case rebuild != nil:
				return followRebuild(ctx, c, *rebuild, detach)
			case result == http.StatusCreated:
				c.out.printf("%s: created\n", name)
			default:
				c.out.printf("%s: applied; its documents stay as they are\n", name)
			}
			return nil
		}),
	}
	command.Flags().BoolVar(&detach, "detach", false, "do not wait for the end of a rebuild")
	acceptLoss(command, &loss)
	return command
}

// putProjection stores a definition in the service. It returns the answer's status, and the rebuild if there is one.
func putProjection(ctx context.Context, c *call, name string, definition []byte, params *client.PutProjectionParams) (status int, rebuild *client.Rebuild, err error) {
	response, err := c.PutProjectionWithBody(ctx, name, params, "application/json", bytes.NewReader(definition))
	if err != nil {
		return 0, nil, err
	}
	if response.StatusCode != http.StatusAccepted {
		return response.StatusCode, nil, done(response, nil)
	}
	started, err := read[client.Rebuild](response, nil)
	return response.StatusCode, &started, err
}

func projectionList(to *connection) *cobra.Command {
	return list(to, &cobra.Command{
		Use:   "list",
		Short: "List the projections",
		Args:  cobra.NoArgs,
	}, func(ctx context.Context, c *call) iter.Seq2[client.Projection, error] {
		return pages(func(*string) (*http.Response, error) { return c.ListProjections(ctx) },
			func(answer client.ProjectionList) []client.Projection { return answer.Projections })
	}, table[client.Projection]{
		none:   "projections",
		header: "NAME\tSHARED\tBUILD\tREVISION",
		row:    func(p client.Projection) []any { return []any{p.Name, p.Shared, p.Build, p.Revision} },
	})
}

func projectionState(to *connection) *cobra.Command {
	return to.onBehalf(&cobra.Command{
		Use:   "state NAME",
		Short: "Show a projection's state and progress",
		Args:  cobra.ExactArgs(1),
	}, func(ctx context.Context, c *call, tenant *string) error {
		state, err := read[client.ProjectionState](c.GetProjectionState(ctx, c.args[0], &client.GetProjectionStateParams{Tenant: tenant}))
		if err != nil {
			return err
		}
		return printProjectionState(ctx, c, state)
	})
}

// printProjectionState prints a projection's state. After that, it returns an error if the projection is stopped.
func printProjectionState(_ context.Context, c *call, state client.ProjectionState) error {
	c.out.printf("%s: %s", state.Name, state.State)
	if state.Checkpoint != nil && state.LagEvents != nil && state.LagSeconds != nil {
		c.out.printf(" at position %d of %d, build %d, %s and %.1f s behind, %s to fold\n", *state.Checkpoint, state.Head, state.Build,
			howMany(max(0, state.Head-*state.Checkpoint), "position"), *state.LagSeconds, howMany(*state.LagEvents, "event"))
	} else {
		c.out.printf(", build %d\n", state.Build)
	}
	if state.Parked > 0 {
		c.out.printf("parked documents: %d; see manifold projection parked %s\n", state.Parked, state.Name)
	}
	if left := state.LeftBehind; left != nil {
		c.out.printf("the last rebuild left it on its old documents: %s\n", oneLine(left.Reason))
		if left.Position > 0 {
			c.out.printf("to leave out that event: manifold projection skip %s %d; then the operator rebuilds it\n", state.Name, left.Position)
		}
	}
	printLoss(c.out, state.Loss)
	switch {
	case state.Fault != nil:
		printFault(c.out, *state.Fault)
		return fmt.Errorf("it is stopped at the event at position %d: %s", state.Fault.Position, state.Fault.Message)
	case state.Error != "":
		return fmt.Errorf("it cannot continue%s: %s%s", at(" since ", state.Since), state.Error, at("; the next try is at ", state.NextTry))
	}
	return nil
}

func projectionVersions(to *connection) *cobra.Command {
	return show(to, &cobra.Command{
		Use:   "versions NAME",
		Short: "Show the changes of a projection's definition, with authors and times",
		Long: `Show the versions of a projection's definition, the newest first, each with its differences from the version before. They are kept
after the projection is removed.`,
		Args: cobra.ExactArgs(1),
	}, (*client.Client).ListProjectionVersions, func(_ context.Context, c *call, answer client.ProjectionVersionList) error {
		for _, v := range answer.Versions {
			rebuild := ""
			if v.Rebuild != "" {
				rebuild = ", rebuild " + v.Rebuild
			}
			c.out.line(yellow, "version %d: %s by %s, %s%s", v.Version, v.Cause, v.By, local(v.At), rebuild)
			c.out.changes(v.Changes)
		}
		return nil
	})
}
