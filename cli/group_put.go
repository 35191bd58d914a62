package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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
	file                                            string
	batchSize, maxInFlight, maxAttempts, partitions int
	ackTimeout, backoffMin, backoffMax              time.Duration
}

func groupPut(to *connection) *cobra.Command {
	f := &groupFlags{}
	command := &cobra.Command{
		Use:   "put NAME",
		Short: "Make a group, or change one, and show what has changed",
		Long: `Make a group, or change one, and show what has changed. What no flag names stays as it is, or is the service's default for a
group that is new. With -f the file is the whole definition: what it leaves out is the default; flags are put on top of it.

Where a new group begins, --from says; manifold group seek moves one that is there. Ordering and partitions stay as they were
made.`,
		Example: `  manifold group put send-mail --category order --types OrderPlaced --ordering stream
  manifold group put send-mail --max-attempts 10 --backoff-max 1h
  manifold group put send-mail -f send-mail.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			before, err := groupDefinition(command.Context(), service, args[0])
			if err != nil {
				return err
			}
			wanted := before
			if f.file != "" {
				if wanted, err = readNamed("group", f.file, args[0], command.InOrStdin()); err != nil {
					return err
				}
			}
			body, err := f.onTopOf(wanted, command.Flags().Changed)
			if err != nil {
				return err
			}
			r, err := service.PutSubscriptionWithBodyWithResponse(command.Context(), args[0], "application/json", bytes.NewReader(body))
			if err != nil {
				return err
			}
			group := r.JSON200
			if r.JSON201 != nil {
				group = r.JSON201
			}
			if group == nil {
				return refusal(r.Status(), r.Body)
			}
			after, err := definitionOf(*group, groupFields)
			if err != nil {
				return err
			}
			return tellPut(command.OutOrStdout(), args[0], groupFields, r.JSON201 != nil, before, after)
		}),
	}
	flags := command.Flags()
	f.bind(command, "group", "start (default), end", "at most one event of a stream in flight")
	flags.StringVarP(&f.file, "file", "f", "", "a YAML or JSON file with the definition; - is the standard input")
	flags.IntVar(&f.batchSize, "batch-size", 0, "events of a receive that names no number")
	flags.IntVar(&f.maxInFlight, "max-in-flight", 0, "events delivered and not answered yet, in each partition")
	flags.DurationVar(&f.ackTimeout, "ack-timeout", 0, "how long a consumer has for its answer, such as 30s")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "deliveries of an event before it becomes a dead letter")
	flags.DurationVar(&f.backoffMin, "backoff-min", 0, "from a failure to the second attempt, such as 1s; doubled with each further one")
	flags.DurationVar(&f.backoffMax, "backoff-max", 0, "the longest time between two attempts, such as 5m")
	flags.IntVar(&f.partitions, "partitions", 0, "spread the streams over so many partitions, each of which one member receives")
	exclusiveFlags(command, "stream", "category", "all")
	return command
}

// onTopOf returns the definition for the request, with the given flags applied.
func (f *groupFlags) onTopOf(definition map[string]json.RawMessage, changed func(flag string) bool) ([]byte, error) {
	body := f.selectionFlags.onTopOf(definition, changed,
		field{"batch-size", "batchSize", f.batchSize}, field{"max-in-flight", "maxInFlight", f.maxInFlight},
		field{"ack-timeout", "ackTimeout", f.ackTimeout.Seconds()}, field{"max-attempts", "maxAttempts", f.maxAttempts},
		field{"partitions", "partitions", f.partitions})
	if changed("backoff-min") || changed("backoff-max") {
		backoff := map[string]any{}
		if was := definition["backoff"]; was != nil {
			if err := json.Unmarshal(was, &backoff); err != nil {
				return nil, fmt.Errorf("backoff: it is an object such as {min: 1, max: 300}: %w", err)
			}
		}
		if changed("backoff-min") {
			backoff["min"] = f.backoffMin.Seconds()
		}
		if changed("backoff-max") {
			backoff["max"] = f.backoffMax.Seconds()
		}
		body["backoff"] = backoff
	}
	return json.Marshal(body)
}

// groupDefinition returns a group's stored definition, or nil if there is no such group.
func groupDefinition(ctx context.Context, service *client.ClientWithResponses, name string) (map[string]json.RawMessage, error) {
	r, err := service.GetSubscriptionWithResponse(ctx, name)
	if err != nil {
		return nil, err
	}
	if r.StatusCode() == http.StatusNotFound {
		return nil, nil
	}
	group, err := answered(r.JSON200, r.HTTPResponse, r.Body)
	if err != nil {
		return nil, err
	}
	return definitionOf(group, groupFields)
}
