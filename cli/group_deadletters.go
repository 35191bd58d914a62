package cli

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func groupDeadLetters(to *connection) *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "dead-letters NAME",
		Short: "List the events that a group could not deliver, and why",
		Args:  cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			size := pageSize
			all := pages(func(token *string) ([]client.DeadLetter, *http.Response, error) {
				r, err := service.ListDeadLettersWithResponse(command.Context(), args[0], &client.ListDeadLettersParams{PageSize: &size, PageToken: token})
				if err != nil {
					return nil, nil, err
				}
				page, err := answered(r.JSON200, r.HTTPResponse, r.Body)
				return page.DeadLetters, r.HTTPResponse, err
			})
			return writeList(command.OutOrStdout(), asJSON, "POSITION\tEVENT\tTYPE\tSTREAM\tATTEMPTS\tREPLAYS\tPARKED\tREASON", all, func(d client.DeadLetter) []any {
				parked := d.ParkedAt.Local().Format(time.RFC3339)
				if d.ReplayAt != nil {
					parked += " (being replayed)"
				}
				return []any{d.Event.Position, d.Event.Id, d.Event.Type, d.Event.Stream, d.Attempts, d.Replays, parked, oneLine(d.Reason)}
			})
		}),
	}
	jsonFlag(command, &asJSON, "the dead letters with their events")
	return command
}

// oneOrAll checks that a command's arguments name either one event or all.
func oneOrAll(args []string, all bool) error {
	if (len(args) == 2) == all {
		return errors.New("say which dead letter: its event's id, or --all")
	}
	return nil
}

func groupReplay(to *connection) *cobra.Command {
	all := false
	command := &cobra.Command{
		Use:   "replay NAME [EVENT-ID | --all]",
		Short: "Deliver a dead letter again, or all",
		Long: `Deliver a dead letter again, or all of them: beside new events, with attempts that count anew. What fails again is a dead letter
again.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(command *cobra.Command, args []string) error {
			if err := oneOrAll(args, all); err != nil {
				return err
			}
			service, err := to.open()
			if err != nil {
				return err
			}
			var replayed client.ReplayedDeadLetters
			if all {
				r, callErr := service.ReplayDeadLettersWithResponse(command.Context(), args[0])
				if callErr != nil {
					return callErr
				}
				replayed, err = answered(r.JSON202, r.HTTPResponse, r.Body)
			} else {
				r, callErr := service.ReplayDeadLetterWithResponse(command.Context(), args[0], args[1])
				if callErr != nil {
					return callErr
				}
				replayed, err = answered(r.JSON202, r.HTTPResponse, r.Body)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "%s: %s will be delivered again\n", args[0], howMany(replayed.Replayed, "dead letter"))
			return err
		},
	}
	command.Flags().BoolVar(&all, "all", false, "all dead letters of the group")
	return command
}

func groupDiscard(to *connection) *cobra.Command {
	all, yes := false, false
	command := &cobra.Command{
		Use:   "discard NAME [EVENT-ID | --all]",
		Short: "Give up a dead letter, or all",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(command *cobra.Command, args []string) error {
			if err := oneOrAll(args, all); err != nil {
				return err
			}
			if !yes {
				return errors.New("the group will never deliver what is discarded (the events stay in the log); say --yes if that is meant")
			}
			service, err := to.open()
			if err != nil {
				return err
			}
			discarded := int64(1)
			if all {
				r, err := service.DiscardDeadLettersWithResponse(command.Context(), args[0])
				if err != nil {
					return err
				}
				answer, err := answered(r.JSON200, r.HTTPResponse, r.Body)
				if err != nil {
					return err
				}
				discarded = answer.Discarded
			} else {
				r, err := service.DiscardDeadLetterWithResponse(command.Context(), args[0], args[1])
				if err != nil {
					return err
				}
				if r.StatusCode() != http.StatusNoContent {
					return refusal(r.Status(), r.Body)
				}
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "%s: discarded %s\n", args[0], howMany(discarded, "dead letter"))
			return err
		},
	}
	command.Flags().BoolVar(&all, "all", false, "all dead letters of the group")
	command.Flags().BoolVar(&yes, "yes", false, "confirm")
	return command
}
