package cli

import (
	"context"
	"fmt"
	"io"
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
		Short: "Look after webhooks: make and change them, see what was sent, send it again, and see to their secrets",
		Long: `Look after a tenant's webhooks, which send events to URLs. Making and changing one needs the scope subscriptions:write, and for
what it sends events:read or events:consume, or documents:read where it sends a projection's documents; looking needs any of
the first three. What could not be delivered is with the group webhook.NAME: see manifold group dead-letters.`,
		Args: cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY")
	command.AddCommand(webhookList(to), webhookGet(to), webhookPut(to), webhookDelete(to),
		webhookChange(to, "pause", "Let a webhook send nothing for now; what is due waits", "is paused",
			func(ctx context.Context, s *client.ClientWithResponses, name string) (client.Webhook, error) {
				r, err := s.PauseWebhookWithResponse(ctx, name)
				if err != nil {
					return client.Webhook{}, err
				}
				return answered(r.JSON200, r.HTTPResponse, r.Body)
			}),
		webhookChange(to, "resume", "Let a webhook send again that is paused, or that the service has disabled", "sends again",
			func(ctx context.Context, s *client.ClientWithResponses, name string) (client.Webhook, error) {
				r, err := s.ResumeWebhookWithResponse(ctx, name)
				if err != nil {
					return client.Webhook{}, err
				}
				return answered(r.JSON200, r.HTTPResponse, r.Body)
			}),
		webhookSecrets(to), webhookAttempts(to), webhookReplay(to), webhookTest(to))
	return command
}

// webhooks yields all webhooks. It stops at the first error.
func webhooks(ctx context.Context, service *client.ClientWithResponses) iter.Seq2[client.Webhook, error] {
	size := pageSize
	return pages(func(token *string) ([]client.Webhook, *http.Response, error) {
		r, err := service.ListWebhooksWithResponse(ctx, &client.ListWebhooksParams{PageSize: &size, PageToken: token})
		if err != nil {
			return nil, nil, err
		}
		page, err := answered(r.JSON200, r.HTTPResponse, r.Body)
		return page.Webhooks, r.HTTPResponse, err
	})
}

func webhookList(to *connection) *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "list",
		Short: "List the webhooks, and how far each has come",
		Args:  cobra.NoArgs,
		RunE: to.withService(func(command *cobra.Command, _ []string, service *client.ClientWithResponses) error {
			return writeList(command.OutOrStdout(), asJSON, "NAME\tSOURCE\tURL\tSTATE\tBEHIND\tRETRYING\tDEAD LETTERS",
				webhooks(command.Context(), service), func(webhook client.Webhook) []any {
					return []any{webhook.Name, sourceOfWebhook(webhook.Source), webhook.Url, stateOfWebhook(webhook), webhookBehind(webhook),
						webhook.Progress.Retrying, webhook.Progress.DeadLetters}
				})
		}),
	}
	jsonFlag(command, &asJSON, "the webhooks")
	return command
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
	asJSON := false
	command := &cobra.Command{
		Use:   "get NAME",
		Short: "Show a webhook: its definition, its state, and how far it has come",
		Args:  cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			webhook, err := readWebhook(command.Context(), service, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(command.OutOrStdout(), webhook)
			}
			return showWebhook(command.OutOrStdout(), webhook)
		}),
	}
	jsonFlag(command, &asJSON, "the webhook")
	return command
}

func readWebhook(ctx context.Context, service *client.ClientWithResponses, name string) (client.Webhook, error) {
	r, err := service.GetWebhookWithResponse(ctx, name)
	if err != nil {
		return client.Webhook{}, err
	}
	return answered(r.JSON200, r.HTTPResponse, r.Body)
}

// showWebhook prints a webhook for people.
func showWebhook(out io.Writer, webhook client.Webhook) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s, of %s from %s", webhook.Name, stateOfWebhook(webhook), sourceOfWebhook(webhook.Source), webhook.From)
	if len(webhook.Types) > 0 {
		fmt.Fprintf(&text, ", types %s", strings.Join(webhook.Types, ","))
	}
	if d := webhook.Disabled; d != nil {
		fmt.Fprintf(&text, "\n  disabled:     %s: %s", d.At.Local().Format(time.RFC3339), oneLine(d.Reason))
	}
	fmt.Fprintf(&text, "\n  url:          %s", webhook.Url)
	if f := webhook.Failing; f != nil {
		fmt.Fprintf(&text, "\n  failing:      since %s, %s in a row; the last at %s: %s", f.Since.Local().Format(time.RFC3339), howMany(f.Attempts, "attempt"),
			f.LastAt.Local().Format(time.RFC3339), said(client.WebhookAttempt{Outcome: f.Outcome, Status: f.Status, Error: f.Error}))
	}
	if webhook.Filter != "" {
		fmt.Fprintf(&text, "\n  filter:       %s", strings.ReplaceAll(strings.TrimSpace(webhook.Filter), "\n", "\n                "))
	}
	fmt.Fprintf(&text, "\n  sends:        %s, within %s, ordering %s", webhook.Format, seconds(webhook.Timeout), webhook.Ordering)
	if webhook.Delay > 0 {
		fmt.Fprintf(&text, ", %s after the event", seconds(webhook.Delay))
	}
	if d := webhook.Dedupe; d != nil {
		fmt.Fprintf(&text, "\n  dedupe:       once in %s for each %s", seconds(d.Window), strings.TrimSpace(d.Id))
	}
	fmt.Fprintf(&text, "\n  checkpoint:   %d of %d, %s behind", webhook.Progress.Checkpoint, webhook.Head, howMany(webhookBehind(webhook), "position"))
	fmt.Fprintf(&text, "\n  under way:    %d in flight, %d waiting for a retry", webhook.Progress.InFlight, webhook.Progress.Retrying)
	fmt.Fprintf(&text, "\n  dead letters: %d", webhook.Progress.DeadLetters)
	if webhook.Progress.DeadLetters > 0 {
		fmt.Fprintf(&text, "; see manifold group dead-letters webhook.%s", webhook.Name)
	}
	fmt.Fprintf(&text, "\n  secrets:      %d\n", len(webhook.Secrets))
	_, err := io.WriteString(out, text.String())
	return err
}

func webhookDelete(to *connection) *cobra.Command {
	return removal(to, "delete NAME", "Delete a webhook, with its secrets, attempts and dead letters", "the webhook with its secrets, attempts, retries and dead letters",
		func(ctx context.Context, service *client.ClientWithResponses, name string) (*http.Response, []byte, error) {
			r, err := service.DeleteWebhookWithResponse(ctx, name)
			if err != nil {
				return nil, nil, err
			}
			return r.HTTPResponse, r.Body, nil
		})
}

// webhookChange returns a command that changes a webhook, and then prints the webhook's state.
func webhookChange(to *connection, use, short, what string, do func(context.Context, *client.ClientWithResponses, string) (client.Webhook, error)) *cobra.Command {
	return &cobra.Command{
		Use:   use + " NAME",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			webhook, err := do(command.Context(), service, args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "%s: %s; %s behind\n", webhook.Name, what, howMany(webhookBehind(webhook), "position"))
			return err
		}),
	}
}

func webhookTest(to *connection) *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "test NAME",
		Short: "Send a test message at once, and show what comes of it",
		Long: `Send a test message to a webhook's URL at once, signed like any other, and show what comes of it. It is sent once, also where the
webhook is paused or disabled. The command fails where the message was not taken.`,
		Args: cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			r, err := service.TestWebhookWithResponse(command.Context(), args[0])
			if err != nil {
				return err
			}
			attempt, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(command.OutOrStdout(), attempt)
			} else {
				_, err = fmt.Fprintf(command.OutOrStdout(), "%s: %s after %s\n", args[0], outcomeOf(attempt), milliseconds(attempt.Took))
			}
			if err == nil && attempt.Outcome != "ok" {
				return fmt.Errorf("the test message was not taken: %s", refused(attempt))
			}
			return err
		}),
	}
	jsonFlag(command, &asJSON, "what came of it")
	return command
}
