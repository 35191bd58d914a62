package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
	file, url, projection, format, dedupe string
	delay, window, timeout                time.Duration
}

func webhookPut(to *connection) *cobra.Command {
	f := &webhookFlags{}
	command := &cobra.Command{
		Use:   "put NAME",
		Short: "Make a webhook, or change one, and show what has changed",
		Long: `Make a webhook, or change one, and show what has changed: its first secret, too, which is shown this once. What no flag names stays
as it is, or is the service's default for a webhook that is new. With -f the file is the whole definition: what it leaves
out is the default; flags are put on top of it.

Where a new webhook begins, --from says; manifold webhook replay sends a range again with one that is there. Ordering stays as it
was made. A webhook that the service has disabled goes on.`,
		Example: `  manifold webhook put billing --to https://example.com/events --category order --types OrderPlaced
  manifold webhook put billing --dedupe event.data.customer --dedupe-window 1m
  manifold webhook put billing -f billing.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			before, err := webhookDefinition(command.Context(), service, args[0])
			if err != nil {
				return err
			}
			wanted := before
			if f.file != "" {
				if wanted, err = readNamed("webhook", f.file, args[0], command.InOrStdin()); err != nil {
					return err
				}
			}
			if wanted["url"] == nil && !command.Flags().Changed("to") {
				return errors.New("a webhook needs a URL: give --to, such as https://example.com/events")
			}
			body, err := f.onTopOf(wanted, command.Flags().Changed)
			if err != nil {
				return err
			}
			r, err := service.PutWebhookWithBodyWithResponse(command.Context(), args[0], "application/json", bytes.NewReader(body))
			if err != nil {
				return err
			}
			webhook := r.JSON200
			if r.JSON201 != nil {
				webhook = r.JSON201
			}
			if webhook == nil {
				return refusal(r.Status(), r.Body)
			}
			after, err := definitionOf(*webhook, webhookFields)
			if err != nil {
				return err
			}
			if err := tellPut(command.OutOrStdout(), args[0], webhookFields, r.JSON201 != nil, before, after); err != nil {
				return err
			}
			for _, secret := range webhook.Secrets {
				if secret.Secret != "" {
					return tellSecret(command.OutOrStdout(), secret)
				}
			}
			return nil
		}),
	}
	flags := command.Flags()
	f.bind(command, "webhook", "end (default), start", "one event of a stream after the other")
	flags.StringVarP(&f.file, "file", "f", "", "a YAML or JSON file with the definition; - is the standard input")
	flags.StringVar(&f.url, "to", "", "where the events are sent to, such as https://example.com/events")
	flags.StringVar(&f.projection, "projection", "", "of the events that a projection sees, once their documents are stored")
	flags.DurationVar(&f.delay, "delay", 0, "from an event's recording to its sending, such as 10s")
	flags.StringVar(&f.dedupe, "dedupe", "", "an expression of event that gives a text, as string(event.data.number) does: of the events with one text within the window the first is sent; '' for none")
	flags.DurationVar(&f.window, "dedupe-window", 0, "the window of --dedupe, such as 1m")
	flags.StringVar(&f.format, "format", "", "standard (default); or cloudevents: one CloudEvent")
	flags.DurationVar(&f.timeout, "timeout", 0, "how long the receiver has for its answer, at most 15s")
	exclusiveFlags(command, "stream", "category", "projection", "all")
	return command
}

// onTopOf returns the definition for the request, with the given flags applied.
func (f *webhookFlags) onTopOf(definition map[string]json.RawMessage, changed func(flag string) bool) ([]byte, error) {
	body := f.selectionFlags.onTopOf(definition, changed,
		field{"to", "url", f.url}, field{"delay", "delay", f.delay.Seconds()}, field{"format", "format", f.format},
		field{"timeout", "timeout", f.timeout.Seconds()})
	if changed("projection") {
		body["source"] = map[string]any{"projection": f.projection}
	}
	switch {
	case changed("dedupe") && f.dedupe == "":
		delete(body, "dedupe")
	case changed("dedupe") || changed("dedupe-window"):
		dedupe := map[string]any{}
		if was := definition["dedupe"]; was != nil {
			if err := json.Unmarshal(was, &dedupe); err != nil {
				return nil, fmt.Errorf("dedupe: it is an object such as {id: event.data.customer, window: 60}: %w", err)
			}
		}
		if changed("dedupe") {
			dedupe["id"] = f.dedupe
		}
		if changed("dedupe-window") {
			dedupe["window"] = f.window.Seconds()
		}
		body["dedupe"] = dedupe
	}
	return json.Marshal(body)
}

// webhookDefinition returns a webhook's stored definition, or nil if there is no such webhook.
func webhookDefinition(ctx context.Context, service *client.ClientWithResponses, name string) (map[string]json.RawMessage, error) {
	r, err := service.GetWebhookWithResponse(ctx, name)
	if err != nil {
		return nil, err
	}
	if r.StatusCode() == http.StatusNotFound {
		return nil, nil
	}
	webhook, err := answered(r.JSON200, r.HTTPResponse, r.Body)
	if err != nil {
		return nil, err
	}
	return definitionOf(webhook, webhookFields)
}
