package remote

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// webhookFields are the fields of a webhook's definition, in the order in which changes are printed.
var webhookFields = []string{
	"source", "types", "filter", "url", "delay", "dedupe", "from", "format", "ordering", "timeout",
}

// webhookFlags are the fields of a definition that were given as flags.
type webhookFlags struct {
	selectionFlags
	url, projection, format, dedupe string
	delay, window, timeout          time.Duration
}

func webhookPut(to *connection) *cobra.Command {
	f := &webhookFlags{}
	command := &cobra.Command{
		Use:   "put NAME",
		Short: "Create or change a webhook, and show what has changed",
		Long: `Create or change a webhook, and show what has changed. A new webhook's first secret is shown this once. Fields without a flag keep
their values; a new webhook has the service's defaults. With -f, the file is the whole definition: fields missing from it have
their defaults, and flags override it.

--from sets where a new webhook begins; to send a range of events again, use manifold webhook replay. Ordering cannot be
changed. A webhook that the service has disabled is enabled.`,
		Example: `  manifold webhook put billing --to https://example.com/events --category order --types OrderPlaced
  manifold webhook put billing --dedupe event.data.customer --dedupe-window 1m
  manifold webhook put billing -f billing.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			webhook, err := putDefinition[client.Webhook](ctx, c, definitionPut{
				kind: "webhook", fields: webhookFields, file: f.file,
				get: c.GetWebhook, put: c.PutWebhookWithBody, change: f.change,
			})
			if err != nil {
				return err
			}
			for _, secret := range webhook.Secrets {
				if secret.Secret != "" {
					printSecret(c.out, secret)
					break
				}
			}
			return nil
		}),
	}
	flags := command.Flags()
	f.bind(command, "webhook", "end (default), start", "one event of a stream after the other")
	flags.StringVar(&f.url, "to", "", "the URL that receives the events, such as https://example.com/events")
	flags.StringVar(&f.projection, "projection", "", "events that this projection sees, once their documents are stored")
	flags.DurationVar(&f.delay, "delay", 0, "how long after its recording an event is sent, such as 10s")
	flags.StringVar(&f.dedupe, "dedupe", "", "an expression of event that returns a string, such as string(event.data.number): of the events with equal strings within the window, only the first is sent; '' for none")
	flags.DurationVar(&f.window, "dedupe-window", 0, "the window of --dedupe, such as 1m")
	flags.StringVar(&f.format, "format", "", "standard (default); or cloudevents: one CloudEvent")
	flags.DurationVar(&f.timeout, "timeout", 0, "how long the receiver may take to answer, at most 15s")
	exclusiveFlags(command, "stream", "category", "projection", "all")
	return command
}

// change returns the definition with the given flags applied.
func (f *webhookFlags) change(definition map[string]json.RawMessage, changed func(flag string) bool) (map[string]any, error) {
	body := f.selectionFlags.change(definition, changed,
		field{"to", "url", f.url}, field{"delay", "delay", f.delay.Seconds()}, field{"format", "format", f.format},
		field{"timeout", "timeout", f.timeout.Seconds()})
	if body["url"] == nil {
		return nil, errors.New("a webhook needs a URL: give --to, such as https://example.com/events")
	}
	if changed("projection") {
		body["source"] = map[string]any{"projection": f.projection}
	}
	if changed("dedupe") && f.dedupe == "" {
		delete(body, "dedupe")
		return body, nil
	}
	return body, changeObject(body, "dedupe", "{id: event.data.customer, window: 60}", changed,
		field{"dedupe", "id", f.dedupe}, field{"dedupe-window", "window", f.window.Seconds()})
}
