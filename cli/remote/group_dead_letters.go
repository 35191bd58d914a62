package remote

import (
	"context"
	"errors"
	"iter"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func groupDeadLetters(to *connection) *cobra.Command {
	return withJSON("the dead letters with their events", list(to, &cobra.Command{
		Use:   "dead-letters NAME",
		Short: "List the events that a group could not deliver, and why",
		Args:  cobra.ExactArgs(1),
	}, func(ctx context.Context, c *call) iter.Seq2[client.DeadLetter, error] {
		return pages(func(token *string) (*http.Response, error) {
			return c.ListDeadLetters(ctx, c.args[0], &client.ListDeadLettersParams{PageSize: new(pageSize), PageToken: token})
		}, func(page client.DeadLetterList) []client.DeadLetter { return page.DeadLetters })
	}, table[client.DeadLetter]{
		none:   "dead letters",
		header: "POSITION\tEVENT\tTYPE\tSTREAM\tATTEMPTS\tREPLAYS\tPARKED\tREASON",
		row: func(d client.DeadLetter) []any {
			parked := local(d.ParkedAt)
			if d.ReplayAt != nil {
				parked += " (being replayed)"
			}
			return []any{d.Event.Position, d.Event.Id, d.Event.Type, d.Event.Stream, d.Attempts, d.Replays, parked, oneLine(d.Reason)}
		},
	}))
}

// oneOrAll returns a check that a command's arguments name a group, and either one event or all.
func oneOrAll(all *bool) cobra.PositionalArgs {
	return cobra.MatchAll(cobra.RangeArgs(1, 2), func(_ *cobra.Command, args []string) error {
		if (len(args) == 2) == *all {
			return errors.New("give either an event's id or --all")
		}
		return nil
	})
}

func groupReplay(to *connection) *cobra.Command {
	all := false
	command := &cobra.Command{
		Use:   "replay NAME [EVENT-ID | --all]",
		Short: "Redeliver one dead letter or all",
		Long: `Redeliver one dead letter or all, alongside new events. Attempts are counted from 1 again. An event that fails again becomes a dead
letter again.`,
		Args: oneOrAll(&all),
		RunE: to.run(func(ctx context.Context, c *call) error {
			var replayed client.ReplayedDeadLetters
			var err error
			if all {
				replayed, err = read[client.ReplayedDeadLetters](c.ReplayDeadLetters(ctx, c.args[0]))
			} else {
				replayed, err = read[client.ReplayedDeadLetters](c.ReplayDeadLetter(ctx, c.args[0], c.args[1]))
			}
			if err != nil {
				return err
			}
			return c.out.printf("%s: %s will be delivered again\n", c.args[0], howMany(replayed.Replayed, "dead letter"))
		}),
	}
	command.Flags().BoolVar(&all, "all", false, "all dead letters of the group")
	return command
}

func groupDiscard(to *connection) *cobra.Command {
	all := false
	command := &cobra.Command{
		Use:   "discard NAME [EVENT-ID | --all]",
		Short: "Discard one dead letter or all",
		Args:  oneOrAll(&all),
		RunE: to.run(func(ctx context.Context, c *call) error {
			discarded := client.Discarded{Discarded: 1}
			var err error
			if all {
				discarded, err = read[client.Discarded](c.DiscardDeadLetters(ctx, c.args[0]))
			} else {
				err = done(c.DiscardDeadLetter(ctx, c.args[0], c.args[1]))
			}
			if err != nil {
				return err
			}
			return c.out.printf("%s: discarded %s\n", c.args[0], howMany(discarded.Discarded, "dead letter"))
		}),
	}
	command.Flags().BoolVar(&all, "all", false, "all dead letters of the group")
	return confirmed(command, "the group will never deliver discarded dead letters (their events stay in the log)")
}
