package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func groupPeek(to *connection) *cobra.Command {
	limit, partition, asJSON := 10, 0, false
	command := &cobra.Command{
		Use:   "peek NAME",
		Short: "Show the events that a group delivers next, has in flight and retries",
		Long: `Show the events that a group would deliver now, that are in flight, and that wait for a retry. Nothing is leased, and no attempt is
counted. A paused group shows what it would deliver. Of a group with partitions all are shown, each with an equal share of
--limit; --partition shows one of them.`,
		Example: `  manifold group peek send-mail
  manifold group peek totals --partition 3 --limit 100`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			params := &client.PeekSubscriptionParams{Limit: &limit}
			if limit < 1 {
				return errors.New("--limit must be at least 1")
			}
			if command.Flags().Changed("partition") {
				params.Partition = &partition
			}
			service, err := to.open()
			if err != nil {
				return err
			}
			return peek(command.Context(), service, args[0], params, asJSON, command.OutOrStdout(), command.ErrOrStderr())
		},
	}
	command.Flags().IntVar(&limit, "limit", limit, "how many events of each kind at most, up to 100")
	command.Flags().IntVar(&partition, "partition", 0, "the only partition to show")
	jsonFlag(command, &asJSON, "the answer")
	return command
}

func peek(ctx context.Context, service *client.ClientWithResponses, name string, params *client.PeekSubscriptionParams, asJSON bool, out, people io.Writer) error {
	var found client.SubscriptionPeek
	for searched := false; ; searched = true {
		r, err := service.PeekSubscriptionWithResponse(ctx, name, params)
		if err != nil {
			return err
		}
		if found, err = answered(r.JSON200, r.HTTPResponse, r.Body); err != nil {
			return err
		}
		if !found.Searching || len(found.Next) > 0 {
			break
		}
		if !searched {
			fmt.Fprintln(people, stillSearching)
		}
	}
	if asJSON {
		return writeJSON(out, found)
	}
	for _, kind := range []struct {
		name   string
		events []client.PeekedEvent
	}{{"next", found.Next}, {"in flight", found.InFlight}, {"retrying", found.Retrying}} {
		for _, e := range kind.events {
			if _, err := fmt.Fprintf(out, "%-9s  %s\n", kind.name, peekedLine(e)); err != nil {
				return err
			}
		}
	}
	switch {
	case len(found.Next)+len(found.InFlight)+len(found.Retrying) == 0:
		fmt.Fprintln(people, "nothing is due, in flight or waiting for a retry")
	case found.Searching:
		fmt.Fprintln(people, "there may be more: the log was not searched to its end")
	}
	return nil
}

// stillSearching is printed once while a group skips many events that are not its own.
const stillSearching = "still searching the log for the group's events"

// peekedLine formats an event that a group has peeked at, on one line.
func peekedLine(e client.PeekedEvent) string {
	what := fmt.Sprintf("attempt %d", e.Attempt)
	if e.AckDeadline != nil {
		what += ", until " + e.AckDeadline.Local().Format(toTheMillisecond)
	}
	if e.DueAt != nil {
		what += ", due at " + e.DueAt.Local().Format(toTheMillisecond)
	}
	if e.Reason != "" {
		what += ": " + oneLine(e.Reason)
	}
	if e.Partition != nil {
		what = fmt.Sprintf("partition %d, ", *e.Partition) + what
	}
	if e.Replays > 0 {
		what += fmt.Sprintf(", replayed %d times", e.Replays)
	}
	return eventHead(e.Event) + "  (" + what + ")  " + string(e.Event.Data)
}
