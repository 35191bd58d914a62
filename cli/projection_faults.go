package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// showFault prints, for people, what stops a projection.
func showFault(out io.Writer, fault client.Fault) {
	fmt.Fprintf(out, "  event:      %d, %s", fault.Position, fault.EventId)
	if fault.Type != "" {
		fmt.Fprintf(out, ", %s of %s", fault.Type, fault.Stream)
	}
	fmt.Fprintln(out)
	for _, part := range []struct{ name, text string }{
		{"document", fault.DocumentId}, {"part", fault.Where}, {"expression", fault.Expression}, {"before", string(fault.Before)},
	} {
		if part.text != "" {
			fmt.Fprintf(out, "  %-11s %s\n", part.name+":", strings.ReplaceAll(strings.TrimSpace(part.text), "\n", "\n              "))
		}
	}
	fmt.Fprintf(out, "  message:    %s\n", fault.Message)
}

// onBehalf makes a command act for a tenant: the key's own, or, with the operator's key, the one named by the flag
// --tenant. do receives the tenant's id in the form of a request parameter.
func (to *connection) onBehalf(command *cobra.Command, do func(command *cobra.Command, args []string, service *client.ClientWithResponses, tenant *string) error) *cobra.Command {
	name := command.Flags().String("tenant", "", "with the operator's key: the name or id of the tenant that is meant")
	command.RunE = to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
		if *name == "" {
			return do(command, args, service, nil)
		}
		tenant, err := findTenant(command.Context(), service, *name)
		if err != nil {
			return err
		}
		return do(command, args, service, &tenant.Id)
	})
	return command
}

func projectionRetry(to *connection) *cobra.Command {
	command := &cobra.Command{
		Use:   "retry NAME",
		Short: "Try the event again that a projection stands before",
		Args:  cobra.ExactArgs(1),
	}
	return to.onBehalf(command, func(command *cobra.Command, args []string, service *client.ClientWithResponses, tenant *string) error {
		r, err := service.RetryProjectionWithResponse(command.Context(), args[0], &client.RetryProjectionParams{Tenant: tenant})
		if err != nil {
			return err
		}
		if _, err := answered(r.JSON202, r.HTTPResponse, r.Body); err != nil {
			return err
		}
		_, err = fmt.Fprintf(command.OutOrStdout(), "%s: tried again; `manifold projection state %s` says what comes of it\n", args[0], args[0])
		return err
	})
}

func projectionSkip(to *connection) *cobra.Command {
	reason := ""
	command := &cobra.Command{
		Use:   "skip NAME POSITION",
		Short: "Pass over the event that a projection stands before",
		Long: `Pass over the event that a projection stands before, at the position that its state shows. It is recorded, with who did it and
why, and holds for every build, of later versions of the definition too, until "manifold projection unskip".`,
		Args: cobra.ExactArgs(2),
	}
	command.Flags().StringVar(&reason, "reason", "", "why, for whoever asks later")
	return to.onBehalf(command, func(command *cobra.Command, args []string, service *client.ClientWithResponses, tenant *string) error {
		var position int64
		var err error
		if position, err = positionOf(args[1]); err != nil {
			return fmt.Errorf("%w: give the one that `manifold projection state %s` shows", err, args[0])
		}
		r, err := service.SkipEventWithResponse(command.Context(), args[0], &client.SkipEventParams{Tenant: tenant}, client.Skip{Position: position, Reason: reason})
		if err != nil {
			return err
		}
		skipped, err := answered(r.JSON200, r.HTTPResponse, r.Body)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(command.OutOrStdout(), "%s: event %d (%s) is passed over from version %d on\n", args[0], skipped.Position, skipped.EventId, skipped.Version)
		return err
	})
}

func projectionSkipped(to *connection) *cobra.Command {
	command := &cobra.Command{
		Use:   "skipped NAME",
		Short: "List the events that a projection passes over",
		Args:  cobra.ExactArgs(1),
	}
	return to.onBehalf(command, func(command *cobra.Command, args []string, service *client.ClientWithResponses, tenant *string) error {
		r, err := service.ListSkippedEventsWithResponse(command.Context(), args[0], &client.ListSkippedEventsParams{Tenant: tenant})
		if err != nil {
			return err
		}
		list, err := answered(r.JSON200, r.HTTPResponse, r.Body)
		if err != nil {
			return err
		}
		return writeTable(command.OutOrStdout(), "POSITION\tVERSION\tBY\tREASON\tFAULT", list.Skipped, func(e client.SkippedEvent) []any {
			version := fmt.Sprint(e.Version)
			if e.Lasting {
				version += "+"
			}
			return []any{e.Position, version, e.By, oneLine(e.Reason), oneLine(e.Message)}
		})
	})
}

// positionOf parses a position in a command's arguments.
func positionOf(text string) (int64, error) {
	position, err := strconv.ParseInt(text, 10, 64)
	if err != nil || position < 1 {
		return 0, fmt.Errorf("%q is no position", text)
	}
	return position, nil
}

func projectionUnskip(to *connection) *cobra.Command {
	command := &cobra.Command{
		Use:   "unskip NAME POSITION",
		Short: "Withdraw a skip: pass over the event no more",
		Long: `Withdraw a skip, at the position that "manifold projection skipped" shows: builds that are made from now on fold the event again. What
was passed over already stays so until the next rebuild.`,
		Args: cobra.ExactArgs(2),
	}
	return to.onBehalf(command, func(command *cobra.Command, args []string, service *client.ClientWithResponses, tenant *string) error {
		position, err := positionOf(args[1])
		if err != nil {
			return fmt.Errorf("%w: give one that `manifold projection skipped %s` shows", err, args[0])
		}
		r, err := service.WithdrawSkipWithResponse(command.Context(), args[0], position, &client.WithdrawSkipParams{Tenant: tenant})
		if err != nil {
			return err
		}
		if r.StatusCode() != http.StatusNoContent {
			return refusal(r.Status(), r.Body)
		}
		_, err = fmt.Fprintf(command.OutOrStdout(), "%s: event %d is passed over no more, from the next rebuild on\n", args[0], position)
		return err
	})
}

func projectionParked(to *connection) *cobra.Command {
	command := &cobra.Command{
		Use:   "parked NAME",
		Short: "List the documents that a projection has set aside",
		Args:  cobra.ExactArgs(1),
	}
	return to.onBehalf(command, func(command *cobra.Command, args []string, service *client.ClientWithResponses, tenant *string) error {
		all := pages(func(token *string) ([]client.ParkedDocument, *http.Response, error) {
			r, err := service.ListParkedDocumentsWithResponse(command.Context(), args[0], &client.ListParkedDocumentsParams{Tenant: tenant, PageToken: token})
			if err != nil {
				return nil, nil, err
			}
			list, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			return list.Parked, r.HTTPResponse, err
		})
		for d, err := range all {
			if err != nil {
				return err
			}
			fmt.Fprintf(command.OutOrStdout(), "%s: %d events wait\n", d.Id, d.Events)
			showFault(command.OutOrStdout(), d.Fault)
		}
		return nil
	})
}

func projectionReplay(to *connection) *cobra.Command {
	command := &cobra.Command{
		Use:   "replay NAME [DOCUMENT]",
		Short: "Fold what waits for a parked document, or for all of them",
		Args:  cobra.RangeArgs(1, 2),
	}
	return to.onBehalf(command, func(command *cobra.Command, args []string, service *client.ClientWithResponses, tenant *string) error {
		var replayed client.Replayed
		if len(args) == 2 {
			r, err := service.ReplayParkedDocumentWithResponse(command.Context(), args[0], args[1], &client.ReplayParkedDocumentParams{Tenant: tenant})
			if err != nil {
				return err
			}
			if replayed, err = answered(r.JSON200, r.HTTPResponse, r.Body); err != nil {
				return err
			}
		} else {
			r, err := service.ReplayParkedDocumentsWithResponse(command.Context(), args[0], &client.ReplayParkedDocumentsParams{Tenant: tenant})
			if err != nil {
				return err
			}
			if replayed, err = answered(r.JSON200, r.HTTPResponse, r.Body); err != nil {
				return err
			}
		}
		fmt.Fprintf(command.OutOrStdout(), "%s: %d events took effect, %d documents are parked no more\n", args[0], replayed.Events, replayed.Documents)
		if replayed.StillParked > 0 {
			return fmt.Errorf("%d documents are still parked; `manifold projection parked %s` says why", replayed.StillParked, args[0])
		}
		return nil
	})
}

func projectionDiscard(to *connection) *cobra.Command {
	yes := false
	command := &cobra.Command{
		Use:   "discard NAME DOCUMENT",
		Short: "Give up the events that wait for a parked document",
		Args:  cobra.ExactArgs(2),
	}
	command.Flags().BoolVar(&yes, "yes", false, "confirm")
	return to.onBehalf(command, func(command *cobra.Command, args []string, service *client.ClientWithResponses, tenant *string) error {
		if !yes {
			return errors.New("this version of the projection will pass over all events that wait (they stay in the log); say --yes if that is meant")
		}
		r, err := service.DiscardParkedDocumentWithResponse(command.Context(), args[0], args[1], &client.DiscardParkedDocumentParams{Tenant: tenant})
		if err != nil {
			return err
		}
		if r.StatusCode() != http.StatusNoContent {
			return refusal(r.Status(), r.Body)
		}
		return nil
	})
}
