package cli

import (
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func webhookAttempts(to *connection) *cobra.Command {
	asJSON, limit := false, 0
	event, outcome := "", ""
	command := &cobra.Command{
		Use:   "attempts NAME",
		Short: "List what a webhook has sent, and what came of it, the newest first",
		Example: `  manifold webhook attempts billing --outcome failed
  manifold webhook attempts billing --event 0190d3a4-5b6c-7def-8123-456789abcde0`,
		Args: cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			size := pageSize
			if limit > 0 {
				size = min(size, limit)
			}
			params := client.ListWebhookAttemptsParams{PageSize: &size}
			if event != "" {
				params.EventId = &event
			}
			if outcome != "" {
				params.Outcome = &outcome
			}
			all := pages(func(token *string) ([]client.WebhookAttempt, *http.Response, error) {
				params.PageToken = token
				r, err := service.ListWebhookAttemptsWithResponse(command.Context(), args[0], &params)
				if err != nil {
					return nil, nil, err
				}
				page, err := answered(r.JSON200, r.HTTPResponse, r.Body)
				return page.Attempts, r.HTTPResponse, err
			})
			return writeList(command.OutOrStdout(), asJSON, "AT\tEVENT\tTYPE\tPOSITION\tATTEMPT\tOUTCOME\tTOOK\tNEXT\tURL\tWHY", upTo(all, limit), func(a client.WebhookAttempt) []any {
				next := ""
				if a.NextAt != nil {
					next = a.NextAt.Local().Format(time.RFC3339)
				}
				return []any{a.At.Local().Format(time.RFC3339), a.EventId, a.Type, a.Position, a.Attempt, outcomeOf(a), milliseconds(a.Took), next, a.Url, said(a)}
			})
		}),
	}
	command.Flags().StringVar(&event, "event", "", "only those of the event with this id")
	command.Flags().StringVar(&outcome, "outcome", "", "only those with this outcome: ok, failed, timeout, blocked, gone or duplicate")
	command.Flags().IntVar(&limit, "limit", 0, "at most so many; 0: all that are kept")
	jsonFlag(command, &asJSON, "the attempts")
	return command
}

// outcomeOf returns an attempt's outcome, with the status of the answer if there was one.
func outcomeOf(attempt client.WebhookAttempt) string {
	if attempt.Status == 0 {
		return attempt.Outcome
	}
	return attempt.Outcome + " " + strconv.Itoa(attempt.Status)
}

// said returns why there was no answer, or the text of an answer other than 2xx.
func said(attempt client.WebhookAttempt) string {
	text := oneLine(attempt.Error)
	if text == "" {
		text = oneLine(attempt.Excerpt)
	}
	if text == "" && attempt.Outcome != "ok" {
		text = outcomeOf(attempt)
	}
	return text
}

// refused returns, as a sentence, why a message was not accepted. A bare excerpt would read like the service's own
// message.
func refused(attempt client.WebhookAttempt) string {
	if attempt.Status == 0 || attempt.Error != "" {
		return said(attempt)
	}
	text := "it was answered with " + strconv.Itoa(attempt.Status)
	if attempt.Excerpt != "" {
		text += ": " + oneLine(attempt.Excerpt)
	}
	return text
}

// milliseconds converts a number of milliseconds from the service to a duration.
func milliseconds(number float64) time.Duration {
	return time.Duration(number * float64(time.Millisecond)).Round(100 * time.Microsecond)
}
