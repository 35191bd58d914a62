package remote

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func groupPeek(to *connection) *cobra.Command {
	limit, partition := 10, 0
	command := &cobra.Command{
		Use:   "peek NAME",
		Short: "Show the events that a group delivers next, has in flight or retries",
		Long: `Show the events that a group would deliver now, has in flight, or will retry. Nothing is leased, and no attempt is counted. A paused
group shows what it would deliver. A group with partitions shows all of them, each with an equal share of --limit; --partition
shows one.`,
		Example: `  manifold group peek send-mail
  manifold group peek totals --partition 3 --limit 100`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			params := &client.PeekSubscriptionParams{Limit: &limit}
			if limit < 1 {
				return errors.New("--limit must be at least 1")
			}
			if c.changed("partition") {
				params.Partition = &partition
			}
			found, err := peek(ctx, c, params)
			switch {
			case err != nil:
				return err
			case c.asJSON:
				return c.out.json(found)
			}
			printPeek(c, found)
			return nil
		}),
	}
	command.Flags().IntVar(&limit, "limit", limit, "the largest number of events of each kind, up to 100")
	command.Flags().IntVar(&partition, "partition", 0, "the only partition to show")
	return withJSON("the answer", command)
}

// peek asks until the service has found an event or has searched the log to its end.
func peek(ctx context.Context, c *call, params *client.PeekSubscriptionParams) (client.SubscriptionPeek, error) {
	for searched := false; ; searched = true {
		found, err := read[client.SubscriptionPeek](c.PeekSubscription(ctx, c.args[0], params))
		if err != nil || !found.Searching || len(found.Next) > 0 {
			return found, err
		}
		if !searched {
			fmt.Fprintln(c.people, stillSearching)
		}
	}
}

func printPeek(c *call, found client.SubscriptionPeek) {
	for _, kind := range []struct {
		name   string
		events []client.PeekedEvent
	}{{"next", found.Next}, {"in flight", found.InFlight}, {"retrying", found.Retrying}} {
		for _, e := range kind.events {
			c.out.printf("%-9s  %s\n", kind.name, peekedLine(e))
		}
	}
	switch {
	case len(found.Next)+len(found.InFlight)+len(found.Retrying) == 0:
		fmt.Fprintln(c.people, "nothing is due, in flight or waiting for a retry")
	case found.Searching:
		fmt.Fprintln(c.people, "there may be more: the log was not searched to its end")
	}
}

// stillSearching is printed once while a group skips many events that are not its own.
const stillSearching = "still searching the log for the group's events"

// peekedLine formats an event that a group has peeked at, on one line.
func peekedLine(e client.PeekedEvent) string {
	state := fmt.Sprintf("attempt %d", e.Attempt)
	if e.AckDeadline != nil {
		state += ", until " + e.AckDeadline.Local().Format(toTheMillisecond)
	}
	if e.DueAt != nil {
		state += ", due at " + e.DueAt.Local().Format(toTheMillisecond)
	}
	if e.Reason != "" {
		state += ": " + oneLine(e.Reason)
	}
	if e.Partition != nil {
		state = fmt.Sprintf("partition %d, ", *e.Partition) + state
	}
	if e.Replays > 0 {
		state += ", replayed " + howMany(e.Replays, "time")
	}
	return eventHead(e.Event) + "  (" + state + ")  " + string(e.Event.Data)
}
