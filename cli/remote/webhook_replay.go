package remote

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func webhookReplay(to *connection) *cobra.Command {
	var from, upTo int64
	cancel := false
	command := &cobra.Command{
		Use:   "replay NAME [--from POSITION [--to POSITION] | --cancel]",
		Short: "Send a range of events again, show the progress, or cancel",
		Long: `Send the events of a webhook's source between two positions again, with their original ids, alongside new events. Without a range,
show the progress of the last replay. A webhook has one replay at a time.`,
		Example: `  manifold webhook replay billing --from 1 --to 1000
  manifold webhook replay billing
  manifold webhook replay billing --cancel`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			if c.changed("to") && !c.changed("from") {
				return errors.New("--to needs --from, the first position of the replay")
			}
			if cancel {
				if err := done(c.CancelWebhookReplay(ctx, c.args[0])); err != nil {
					return err
				}
				return c.out.printf("%s: the replay was cancelled, and its retries and dead letters were dropped\n", c.args[0])
			}
			var replay client.WebhookReplay
			var err error
			if c.changed("from") {
				body := client.NewWebhookReplay{From: from}
				if c.changed("to") {
					body.To = &upTo
				}
				replay, err = read[client.WebhookReplay](c.StartWebhookReplay(ctx, c.args[0], body))
			} else {
				replay, err = read[client.WebhookReplay](c.GetWebhookReplay(ctx, c.args[0]))
			}
			if err != nil {
				return err
			}
			printReplay(c, replay)
			return nil
		}),
	}
	command.Flags().Int64Var(&from, "from", 0, "the first position")
	command.Flags().Int64Var(&upTo, "to", 0, "the last position (default: the log's head)")
	command.Flags().BoolVar(&cancel, "cancel", false, "cancel the replay, and drop its retries and dead letters")
	exclusiveFlags(command, "from", "cancel")
	exclusiveFlags(command, "to", "cancel")
	return command
}

func printReplay(c *call, replay client.WebhookReplay) {
	state := "under way"
	if replay.DoneAt != nil {
		state = "done" + at(" at ", replay.DoneAt)
	}
	c.out.printf("%s: the replay of positions %d to %d is %s: read to %d, %d waiting for a retry, %s\n",
		c.args[0], replay.From, replay.To, state, replay.Progress.ReadTo, replay.Progress.Retrying, howMany(replay.Progress.DeadLetters, "dead letter"))
}
