package remote

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func redactCommand() *cobra.Command {
	to, reason := &connection{}, ""
	command := &cobra.Command{
		Use:   "redact TENANT POSITION --reason TEXT",
		Short: "Remove the data of an unreadable event, with the operator's key",
		Long: `Remove the data and metadata of an unreadable event for good, with the operator's key. The event keeps its id, stream, version,
position, type and times. Readers see that it was redacted, and why. Readable events are immutable, so redacting one is refused.
manifold doctor --events lists unreadable events.`,
		Example: `  manifold redact acme 4711 --reason "9000 numbers of 131 kB each" --yes`,
		Args:    cobra.ExactArgs(2),
		RunE: to.run(func(ctx context.Context, c *call) error {
			position, err := parsePosition(c.args[1])
			if err != nil {
				return err
			}
			tenant, err := findTenant(ctx, c, c.args[0])
			if err != nil {
				return err
			}
			event, err := read[client.Event](c.RedactEvent(ctx, tenant.Id, position, client.Redaction{Reason: reason}))
			if err != nil {
				return err
			}
			return c.out.printf("event %s, version %d of %s: its data was removed\n", event.Id, event.Version, event.Stream)
		}),
	}
	to.bind(command, operatorKey, "MANIFOLD_KEY")
	command.Flags().StringVar(&reason, "reason", "", "the reason, shown to readers of the event")
	_ = command.MarkFlagRequired("reason") // the flag exists
	return confirmed(command, "this removes the event's data for good")
}
