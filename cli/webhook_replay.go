package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func webhookReplay(to *connection) *cobra.Command {
	var from, upTo int64
	cancel := false
	command := &cobra.Command{
		Use:   "replay NAME [--from POSITION [--to POSITION] | --cancel]",
		Short: "Send a range of events again; or show how far that is, or end it",
		Long: `Send the events of a webhook's source between two positions once more, each with the id that it had, beside what is sent anyway. Without
a range the command shows the last replay, and how far it has come. There is one at a time for a webhook.`,
		Example: `  manifold webhook replay billing --from 1 --to 1000
  manifold webhook replay billing
  manifold webhook replay billing --cancel`,
		Args: cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			if command.Flags().Changed("to") && !command.Flags().Changed("from") {
				return errors.New("--to says where a replay ends: give --from, too")
			}
			out := command.OutOrStdout()
			switch {
			case cancel:
				r, err := service.CancelWebhookReplayWithResponse(command.Context(), args[0])
				if err != nil {
					return err
				}
				if r.StatusCode() != http.StatusNoContent {
					return refusal(r.Status(), r.Body)
				}
				_, err = fmt.Fprintf(out, "%s: the replay has ended, and what was left of it is gone\n", args[0])
				return err
			case command.Flags().Changed("from"):
				body := client.NewWebhookReplay{From: from}
				if command.Flags().Changed("to") {
					body.To = &upTo
				}
				r, err := service.StartWebhookReplayWithResponse(command.Context(), args[0], body)
				if err != nil {
					return err
				}
				replay, err := answered(r.JSON202, r.HTTPResponse, r.Body)
				if err != nil {
					return err
				}
				return showReplay(out, args[0], replay)
			}
			r, err := service.GetWebhookReplayWithResponse(command.Context(), args[0])
			if err != nil {
				return err
			}
			replay, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			return showReplay(out, args[0], replay)
		}),
	}
	command.Flags().Int64Var(&from, "from", 0, "the first position")
	command.Flags().Int64Var(&upTo, "to", 0, "the last position; without: the log's head")
	command.Flags().BoolVar(&cancel, "cancel", false, "end the replay, and forget its retries and dead letters")
	exclusiveFlags(command, "from", "cancel")
	exclusiveFlags(command, "to", "cancel")
	return command
}

// showReplay prints the progress of a replay.
func showReplay(out io.Writer, name string, replay client.WebhookReplay) error {
	state := "under way"
	if replay.DoneAt != nil {
		state = "done at " + replay.DoneAt.Local().Format(time.RFC3339)
	}
	_, err := fmt.Fprintf(out, "%s: the replay of positions %d to %d is %s: looked at up to %d, %d waiting for a retry, %s\n",
		name, replay.From, replay.To, state, replay.Progress.ReadTo, replay.Progress.Retrying, howMany(replay.Progress.DeadLetters, "dead letter"))
	return err
}
