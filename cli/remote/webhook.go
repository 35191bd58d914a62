package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func webhookCommand() *cobra.Command {
	to := &connection{}
	command := &cobra.Command{
		Use:   "webhook",
		Short: "Manage webhooks, their secrets and attempts",
		Long: `Manage a tenant's webhooks, which send events to URLs.

Creating and changing a webhook needs the scope subscriptions:write, and a scope for what it sends: events:read or events:consume,
or documents:read for a projection's documents. Reads accept subscriptions:write, events:read or events:consume.

A webhook's dead letters are those of the group webhook.NAME: see manifold group dead-letters.`,
		Args: cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY")
	command.AddCommand(webhookList(to), webhookGet(to), webhookPut(to),
		removal(to, "delete NAME", "Delete a webhook with its secrets, attempts and dead letters", "the webhook with its secrets, attempts, retries and dead letters", (*client.Client).DeleteWebhook),
		webhookChange(to, "pause", "Pause a webhook: it sends nothing, and due events wait", "is paused", (*client.Client).PauseWebhook),
		webhookChange(to, "resume", "Resume a webhook that is paused or that the service has disabled", "sends again", (*client.Client).ResumeWebhook),
		webhookSecrets(to), webhookAttempts(to), webhookReplay(to), webhookTest(to), webhookListen())
	completeWebhooks(to, command)
	return command
}

func webhookList(to *connection) *cobra.Command {
	return withJSON("the webhooks", list(to, &cobra.Command{
		Use:   "list",
		Short: "List webhooks and their progress",
		Args:  cobra.NoArgs,
	}, func(ctx context.Context, c *call) iter.Seq2[client.Webhook, error] {
		return pages(func(token *string) (*http.Response, error) {
			return c.ListWebhooks(ctx, &client.ListWebhooksParams{PageSize: new(pageSize), PageToken: token})
		}, func(page client.WebhookList) []client.Webhook { return page.Webhooks })
	}, table[client.Webhook]{
		none:   "webhooks",
		header: "NAME\tSOURCE\tURL\tSTATE\tBEHIND\tRETRYING\tDEAD LETTERS",
		row: func(webhook client.Webhook) []any {
			return []any{webhook.Name, sourceOfWebhook(webhook.Source), webhook.Url, stateOfWebhook(webhook), webhookBehind(webhook),
				webhook.Progress.Retrying, webhook.Progress.DeadLetters}
		},
	}))
}

// sourceOfWebhook describes a webhook's source.
func sourceOfWebhook(source client.WebhookSource) string {
	if source.Projection != "" {
		return "projection " + source.Projection
	}
	return sourceOf(client.SubscriptionSource{Stream: source.Stream, Categories: source.Categories})
}

func stateOfWebhook(webhook client.Webhook) string {
	switch {
	case webhook.Disabled != nil:
		return "disabled"
	case webhook.Paused:
		return "paused"
	default:
		return "active"
	}
}

// webhookBehind returns how many positions a webhook lags behind the head.
func webhookBehind(webhook client.Webhook) int64 {
	return max(webhook.Head-webhook.Progress.Checkpoint, 0)
}

func webhookGet(to *connection) *cobra.Command {
	return withJSON("the webhook", show(to, &cobra.Command{
		Use:   "get NAME",
		Short: "Show a webhook: its definition, state and progress",
		Args:  cobra.ExactArgs(1),
	}, (*client.Client).GetWebhook, printWebhook))
}

func printWebhook(_ context.Context, c *call, webhook client.Webhook) error {
	out := c.out
	out.printf("%s: %s, of %s from %s", webhook.Name, stateOfWebhook(webhook), sourceOfWebhook(webhook.Source), webhook.From)
	if len(webhook.Types) > 0 {
		out.printf(", types %s", strings.Join(webhook.Types, ","))
	}
	if d := webhook.Disabled; d != nil {
		out.printf("\n  disabled:     %s: %s", local(d.At), oneLine(d.Reason))
	}
	out.printf("\n  url:          %s", webhook.Url)
	if f := webhook.Failing; f != nil {
		out.printf("\n  failing:      since %s, %s in a row; the last at %s: %s", local(f.Since), howMany(f.Attempts, "attempt"),
			local(f.LastAt), failureOf(client.WebhookAttempt{Outcome: f.Outcome, Status: f.Status, Error: f.Error}))
	}
	if webhook.Query != nil {
		out.printf("\n  query:        %s", queryText(webhook.Query))
	}
	if webhook.Filter != "" {
		out.printf("\n  filter:       %s", indented(webhook.Filter, 16))
	}
	out.printf("\n  sends:        %s, within %s, ordering %s", webhook.Format, seconds(webhook.Timeout), webhook.Ordering)
	if webhook.Delay > 0 {
		out.printf(", %s after the event", seconds(webhook.Delay))
	}
	if d := webhook.Dedupe; d != nil {
		out.printf("\n  dedupe:       once in %s for each %s", seconds(d.Window), strings.TrimSpace(d.Id))
	}
	out.printf("\n  checkpoint:   %d of %d, %s behind", webhook.Progress.Checkpoint, webhook.Head, howMany(webhookBehind(webhook), "position"))
	out.printf("\n  under way:    %d in flight, %d waiting for a retry", webhook.Progress.InFlight, webhook.Progress.Retrying)
	out.printf("\n  dead letters: %d", webhook.Progress.DeadLetters)
	if webhook.Progress.DeadLetters > 0 {
		out.printf("; see manifold group dead-letters webhook.%s", webhook.Name)
	}
	return out.printf("\n  secrets:      %d\n", len(webhook.Secrets))
}

// webhookChange returns a command that changes a webhook, and then prints the webhook's state.
func webhookChange(to *connection, use, short, result string, change named) *cobra.Command {
	return show(to, &cobra.Command{
		Use:   use + " NAME",
		Short: short,
		Args:  cobra.ExactArgs(1),
	}, change, func(_ context.Context, c *call, webhook client.Webhook) error {
		return c.out.printf("%s: %s; %s behind\n", webhook.Name, result, howMany(webhookBehind(webhook), "position"))
	})
}

func webhookTest(to *connection) *cobra.Command {
	return withJSON("the result", &cobra.Command{
		Use:   "test NAME",
		Short: "Send a test message at once, and show the result",
		Long: `Send a test message to a webhook's URL at once, signed like any other, and show the result. It is sent once, even if the webhook is
paused or disabled. The command fails if the receiver does not accept the message.`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			attempt, err := read[client.WebhookAttempt](c.TestWebhook(ctx, c.args[0]))
			if err != nil {
				return err
			}
			if !c.asJSON {
				c.out.printf("%s: %s after %s\n", c.args[0], outcomeOf(attempt), milliseconds(attempt.Took))
			} else if err := c.out.json(attempt); err != nil {
				return err
			}
			if attempt.Outcome != "ok" {
				return fmt.Errorf("the test message was not accepted: %s", explainRefusal(attempt))
			}
			return nil
		}),
	})
}

// webhookFields are the fields of a webhook's definition, in the order in which changes are printed.
var webhookFields = []string{
	"source", "types", "query", "filter", "url", "delay", "dedupe", "from", "format", "ordering", "timeout",
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
