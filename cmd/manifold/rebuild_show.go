package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func rebuildList(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "list NAME",
		Short: "List a projection's rebuilds, the newest first",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			service, err := to.open()
			if err != nil {
				return err
			}
			list, err := rebuildsOf(command.Context(), service, args[0])
			if err != nil {
				return err
			}
			return writeTable(command.OutOrStdout(), "ID\tBUILD\tSTATE\tEVENTS\tDOCUMENTS\tSTARTED\tBY", list, func(r client.Rebuild) []any {
				state := r.State
				if r.Paused {
					state += " (paused)"
				}
				return []any{r.Id, r.Build, state, fmt.Sprintf("%d/%d", r.EventsDone, r.EventsTotal), r.Documents,
					r.CreatedAt.Local().Format(time.RFC3339), r.By}
			})
		},
	}
}

func rebuildShow(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME [ID]",
		Short: "Show a rebuild's progress, and how its documents differ from the live ones",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(command *cobra.Command, args []string) error {
			service, err := to.open()
			if err != nil {
				return err
			}
			id, err := rebuildMeant(command.Context(), service, args, newest())
			if err != nil {
				return err
			}
			r, err := service.GetRebuildWithResponse(command.Context(), args[0], id)
			if err != nil {
				return err
			}
			rebuild, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			return showRebuild(rebuild, command.OutOrStdout())
		},
	}
}

func showRebuild(rebuild client.Rebuild, out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "rebuild %s of %s, build %d: %s", rebuild.Id, rebuild.Projection, rebuild.Build, rebuild.State)
	if rebuild.Paused {
		text.WriteString(", paused")
	}
	fmt.Fprintf(&text, "\n%d of %d events", rebuild.EventsDone, rebuild.EventsTotal)
	if rebuild.EventsPerSecond != nil {
		fmt.Fprintf(&text, ", %.0f a second", *rebuild.EventsPerSecond)
	}
	if rebuild.SecondsLeft != nil {
		fmt.Fprintf(&text, ", %s left", time.Duration(*rebuild.SecondsLeft*float64(time.Second)).Round(time.Second))
	}
	text.WriteByte('\n')
	if rebuild.Documents > 0 || rebuild.LiveDocuments > 0 {
		fmt.Fprintf(&text, "%d documents; the live build had %d\n", rebuild.Documents, rebuild.LiveDocuments)
	}
	if rebuild.Error != "" {
		fmt.Fprintf(&text, "%s\n", rebuild.Error)
	}
	if err := tellLoss(rebuild.Loss, &text); err != nil {
		return err
	}
	if rebuild.RollbackUntil != nil {
		fmt.Fprintf(&text, "it can be rolled back until %s\n", rebuild.RollbackUntil.Local().Format(time.RFC3339))
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return err
	}
	return tellDifference(rebuild, out)
}
