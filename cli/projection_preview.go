package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func projectionPreview(to *connection) *cobra.Command {
	stream, last := "", 0
	command := &cobra.Command{
		Use:   "preview FILE|- --stream STREAM | --last N",
		Short: "Try a definition out on events, and show what each of them does",
		Long: `Fold events of the tenant by a definition that need not be any projection's yet, from nothing, and show the document after
each event. Nothing is stored. The events are the first thousand of a stream, or the last N that the definition folds.

It ends with 1 where an event cannot be folded.`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if err := oneSource(command, "stream", "last"); err != nil {
				return err
			}
			_, definition, err := readDefinition(args[0], command.InOrStdin())
			if err != nil {
				return err
			}
			source := map[string]any{"stream": stream}
			if command.Flags().Changed("last") {
				source = map[string]any{"last": last}
			}
			body, err := json.Marshal(map[string]any{"definition": json.RawMessage(definition), "source": source})
			if err != nil {
				return err
			}
			service, err := to.open()
			if err != nil {
				return err
			}
			r, err := service.PreviewProjectionWithBodyWithResponse(command.Context(), "application/json", bytes.NewReader(body))
			if err != nil {
				return err
			}
			preview, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			return showSteps(command.OutOrStdout(), preview.Steps)
		},
	}
	command.Flags().StringVar(&stream, "stream", "", "the first thousand events of this stream")
	command.Flags().IntVar(&last, "last", 0, "the last so many events of the definition's source, up to 1000")
	return command
}

// oneSource returns an error unless exactly one of the flags that select events is given. It also refuses --last with
// less than one.
func oneSource(command *cobra.Command, flags ...string) error {
	given := 0
	for _, flag := range flags {
		if command.Flags().Changed(flag) {
			given++
		}
	}
	if given != 1 {
		return fmt.Errorf("say which events to take, by exactly one of --%s; see %s --help", strings.Join(flags, ", --"), command.CommandPath())
	}
	if last, err := command.Flags().GetInt("last"); err == nil && last < 1 && command.Flags().Changed("last") {
		return fmt.Errorf("--last is %d; it must be 1 to 1000", last)
	}
	return nil
}

// showSteps prints what each event did. It returns an error if an event could not be folded.
func showSteps(out io.Writer, steps []client.PreviewStep) error {
	faults := 0
	for _, step := range steps {
		line := fmt.Sprintf("%d %s of %s", step.Position, step.Type, step.Stream)
		switch {
		case step.Fault != nil:
			faults++
			line += fmt.Sprintf("\n  cannot be folded: %s: %s", step.Fault.Where, step.Fault.Message)
			if step.Fault.Before != nil {
				line += fmt.Sprintf("\n  before: %s", step.Fault.Before)
			}
		case step.Parked:
			line += fmt.Sprintf("\n  %s: waits, since the document is parked", step.DocumentId)
		case step.DocumentId == "":
			line += "\n  not for this projection"
		case string(step.Document) == "null":
			line += fmt.Sprintf("\n  %s: no document", step.DocumentId)
		default:
			line += fmt.Sprintf("\n  %s: %s", step.DocumentId, step.Document)
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	if faults > 0 {
		return errors.New("the definition cannot fold every event")
	}
	return nil
}
