package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func projectionCommand() *cobra.Command {
	to := &connection{}
	command := &cobra.Command{
		Use:   "projection",
		Short: "Apply, list, show and remove projections, read their documents, and mend what they cannot fold",
		Long: `Apply, list, show and remove a tenant's projections; with the operator's key, apply, list and remove the shared ones. What is
done about events that cannot be folded, the operator does for the tenant that --tenant names.`,
		Args: cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	command.AddCommand(projectionApply(to), projectionList(to), projectionState(to), projectionVersions(to), projectionPreview(to), projectionDocuments(to), projectionRemove(to),
		projectionRetry(to), projectionSkip(to), projectionSkipped(to), projectionUnskip(to), projectionParked(to), projectionReplay(to), projectionDiscard(to))
	return command
}

func projectionApply(to *connection) *cobra.Command {
	detach, loss := false, false
	command := &cobra.Command{
		Use:   "apply FILE|-",
		Short: "Create a projection, or change it by a rebuild",
		Long: `Create the projection that a YAML or JSON file defines. One that is there already and is defined otherwise is rebuilt: the
present documents serve until the new ones are ready.`,
		Args: cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			name, definition, err := readDefinition(args[0], command.InOrStdin())
			if err != nil {
				return err
			}
			r, err := service.PutProjectionWithBodyWithResponse(command.Context(), name, &client.PutProjectionParams{AcceptLoss: given(loss)}, "application/json", bytes.NewReader(definition))
			if err != nil {
				return err
			}
			switch {
			case r.JSON200 != nil:
				_, err = fmt.Fprintf(command.OutOrStdout(), "%s: nothing to change\n", name)
			case r.JSON201 != nil:
				_, err = fmt.Fprintf(command.OutOrStdout(), "%s: created\n", name)
			case r.JSON202 != nil:
				err = followRebuild(command.Context(), service, *r.JSON202, detach, command.OutOrStdout())
			default:
				err = refusal(r.Status(), r.Body)
			}
			return err
		}),
	}
	command.Flags().BoolVar(&detach, "detach", false, "do not wait for the end of a rebuild")
	acceptLoss(command, &loss)
	return command
}

func projectionList(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the projections",
		Args:  cobra.NoArgs,
		RunE: to.withService(func(command *cobra.Command, _ []string, service *client.ClientWithResponses) error {
			r, err := service.ListProjectionsWithResponse(command.Context())
			if err != nil {
				return err
			}
			list, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			return writeTable(command.OutOrStdout(), "NAME\tSHARED\tBUILD\tREVISION", list.Projections, func(p client.Projection) []any {
				return []any{p.Name, p.Shared, p.Build, p.Revision}
			})
		}),
	}
}

func projectionState(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "state NAME",
		Short: "Show how far a projection has come",
		Args:  cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			r, err := service.GetProjectionStateWithResponse(command.Context(), args[0])
			if err != nil {
				return err
			}
			state, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			line := fmt.Sprintf("%s: %s, build %d", state.Name, state.State, state.Build) // the progress may be unknown
			if state.Checkpoint != nil && state.LagEvents != nil && state.LagSeconds != nil {
				line = fmt.Sprintf("%s: %s at position %d of %d, build %d, %s and %.1f s behind, %s to fold",
					state.Name, state.State, *state.Checkpoint, state.Head, state.Build,
					howMany(max(0, state.Head-*state.Checkpoint), "position"), *state.LagSeconds, howMany(*state.LagEvents, "event"))
			}
			if state.Parked > 0 {
				line += fmt.Sprintf("\nparked documents: %d; see manifold projection parked %s", state.Parked, state.Name)
			}
			if behind := state.LeftBehind; behind != nil {
				line += "\nthe last rebuild left it on its old documents: " + oneLine(behind.Reason)
				if behind.Position > 0 {
					line += fmt.Sprintf("\nwhere that event may be left out: manifold projection skip %s %d; the operator rebuilds it then", state.Name, behind.Position)
				}
			}
			if _, err = fmt.Fprintln(command.OutOrStdout(), line); err == nil {
				err = tellLoss(state.Loss, command.OutOrStdout())
			}
			switch {
			case err != nil:
			case state.Fault != nil:
				showFault(command.OutOrStdout(), *state.Fault)
				err = fmt.Errorf("it stands still before the event at position %d: %s", state.Fault.Position, state.Fault.Message)
			case state.Error != "":
				err = fmt.Errorf("it cannot go on%s: %s%s", at(" since ", state.Since), state.Error, at("; it is tried again at ", state.NextTry))
			}
			return err
		}),
	}
}

// at formats a time with words before it, or returns "" if the time is unknown.
func at(words string, moment *time.Time) string {
	if moment == nil {
		return ""
	}
	return words + moment.Local().Format(time.RFC3339)
}

func projectionRemove(to *connection) *cobra.Command {
	return removal(to, "remove NAME", "Remove a projection with its documents", "the projection's documents",
		func(ctx context.Context, service *client.ClientWithResponses, name string) (*http.Response, []byte, error) {
			r, err := service.DeleteProjectionWithResponse(ctx, name)
			if err != nil {
				return nil, nil, err
			}
			return r.HTTPResponse, r.Body, nil
		})
}
