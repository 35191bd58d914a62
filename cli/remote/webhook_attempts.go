package remote

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func webhookAttempts(to *connection) *cobra.Command {
	limit, event, outcome := 0, "", ""
	command := list(to, &cobra.Command{
		Use:   "attempts NAME",
		Short: "List a webhook's attempts and their outcomes, the newest first",
		Example: `  manifold webhook attempts billing --outcome failed
  manifold webhook attempts billing --event 0190d3a4-5b6c-7def-8123-456789abcde0`,
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, c *call) iter.Seq2[client.WebhookAttempt, error] {
		params := client.ListWebhookAttemptsParams{PageSize: new(pageSize), EventId: given(event), Outcome: given(outcome)}
		if limit > 0 {
			params.PageSize = new(min(pageSize, limit))
		}
		return upTo(pages(func(token *string) (*http.Response, error) {
			params.PageToken = token
			return c.ListWebhookAttempts(ctx, c.args[0], &params)
		}, func(page client.WebhookAttemptList) []client.WebhookAttempt { return page.Attempts }), limit)
	}, table[client.WebhookAttempt]{
		none:   "attempts",
		header: "AT\tEVENT\tTYPE\tPOSITION\tATTEMPT\tOUTCOME\tTOOK\tNEXT\tURL\tWHY",
		row: func(a client.WebhookAttempt) []any {
			return []any{local(a.At), a.EventId, a.Type, a.Position, a.Attempt, outcomeOf(a), milliseconds(a.Took), at("", a.NextAt), a.Url, failureOf(a)}
		},
	})
	command.Flags().StringVar(&event, "event", "", "only attempts of the event with this id")
	command.Flags().StringVar(&outcome, "outcome", "", "only attempts with this outcome: ok, failed, timeout, blocked, gone or duplicate")
	command.Flags().IntVar(&limit, "limit", 0, "the largest number of attempts; 0: all that are kept")
	return withJSON("the attempts", command)
}

// outcomeOf returns an attempt's outcome, with the status of the answer if there was one.
func outcomeOf(attempt client.WebhookAttempt) string {
	if attempt.Status == 0 {
		return attempt.Outcome
	}
	return attempt.Outcome + " " + strconv.Itoa(attempt.Status)
}

// failureOf returns why there was no answer, or the text of an answer other than 2xx.
func failureOf(attempt client.WebhookAttempt) string {
	text := oneLine(attempt.Error)
	if text == "" {
		text = oneLine(attempt.Excerpt)
	}
	if text == "" && attempt.Outcome != "ok" {
		text = outcomeOf(attempt)
	}
	return text
}

// explainRefusal returns, as a sentence, why a message was not accepted. A bare excerpt would read like the service's
// own message.
func explainRefusal(attempt client.WebhookAttempt) string {
	if attempt.Status == 0 || attempt.Error != "" {
		return failureOf(attempt)
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
