package remote

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// groupFields are the fields of a group's definition, in the order in which changes are printed.
var groupFields = []string{
	"source", "types", "filter", "from", "batchSize", "maxInFlight", "ackTimeout", "maxAttempts", "backoff", "ordering", "partitions",
}

// groupFlags are the fields of a definition that were given as flags.
type groupFlags struct {
	selectionFlags
	batchSize, maxInFlight, maxAttempts, partitions int
	ackTimeout, backoffMin, backoffMax              time.Duration
}

func groupPut(to *connection) *cobra.Command {
	f := &groupFlags{}
	command := &cobra.Command{
		Use:   "put NAME",
		Short: "Create or change a group, and show what has changed",
		Long: `Create or change a group, and show what has changed. Fields without a flag keep their values; a new group has the service's
defaults. With -f, the file is the whole definition: fields missing from it have their defaults, and flags override it.

--from sets where a new group begins; to move an existing group, use manifold group seek. Ordering and partitions cannot be
changed.`,
		Example: `  manifold group put send-mail --category order --types OrderPlaced --ordering stream
  manifold group put send-mail --max-attempts 10 --backoff-max 1h
  manifold group put send-mail -f send-mail.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			_, err := putDefinition[client.Subscription](ctx, c, definitionPut{
				kind: "group", fields: groupFields, file: f.file,
				get: c.GetSubscription, put: c.PutSubscriptionWithBody, change: f.change,
			})
			return err
		}),
	}
	flags := command.Flags()
	f.bind(command, "group", "start (default), end", "at most one event of a stream in flight")
	flags.IntVar(&f.batchSize, "batch-size", 0, "events per receive that does not give a number")
	flags.IntVar(&f.maxInFlight, "max-in-flight", 0, "the largest number of unanswered events in each partition")
	flags.DurationVar(&f.ackTimeout, "ack-timeout", 0, "how long a consumer may take to answer, such as 30s")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "deliveries of an event before it becomes a dead letter")
	flags.DurationVar(&f.backoffMin, "backoff-min", 0, "the wait before the second attempt, such as 1s; it doubles with each further attempt")
	flags.DurationVar(&f.backoffMax, "backoff-max", 0, "the longest wait between two attempts, such as 5m")
	flags.IntVar(&f.partitions, "partitions", 0, "the number of partitions for the streams; one member receives each partition")
	exclusiveFlags(command, "stream", "category", "all")
	return command
}

// change returns the definition with the given flags applied.
func (f *groupFlags) change(definition map[string]json.RawMessage, changed func(flag string) bool) (map[string]any, error) {
	body := f.selectionFlags.change(definition, changed,
		field{"batch-size", "batchSize", f.batchSize}, field{"max-in-flight", "maxInFlight", f.maxInFlight},
		field{"ack-timeout", "ackTimeout", f.ackTimeout.Seconds()}, field{"max-attempts", "maxAttempts", f.maxAttempts},
		field{"partitions", "partitions", f.partitions})
	return body, changeObject(body, "backoff", "{min: 1, max: 300}", changed,
		field{"backoff-min", "min", f.backoffMin.Seconds()}, field{"backoff-max", "max", f.backoffMax.Seconds()})
}
