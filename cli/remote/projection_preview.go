package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func projectionPreview(to *connection) *cobra.Command {
	stream, last := "", 0
	command := &cobra.Command{
		Use:   "preview FILE|- --stream STREAM | --last N",
		Short: "Try a definition on events, and show the effect of each",
		Long: `Fold the tenant's events with a definition, and show each event's documents after it. The definition need not belong to a projection,
documents start empty, and nothing is stored. The events are the first thousand of a stream, or the last N that the definition
folds.

The exit code is 1 if an event cannot be folded.`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			if err := oneSource(c.changed, last, "stream", "last"); err != nil {
				return err
			}
			_, definition, err := readDefinition(c.args[0], c.in)
			if err != nil {
				return err
			}
			source := map[string]any{"stream": stream}
			if c.changed("last") {
				source = map[string]any{"last": last}
			}
			body, err := json.Marshal(map[string]any{"definition": json.RawMessage(definition), "source": source})
			if err != nil {
				return err
			}
			preview, err := read[client.PreviewResult](c.PreviewProjectionWithBody(ctx, "application/json", bytes.NewReader(body)))
			if err != nil {
				return err
			}
			return printSteps(c.out, preview.Steps)
		}),
	}
	command.Flags().StringVar(&stream, "stream", "", "the first thousand events of this stream")
	command.Flags().IntVar(&last, "last", 0, "this number of the last events in the definition's source, up to 1000")
	return command
}

// oneSource returns an error unless exactly one of the flags that select events is given. It also refuses --last with
// less than one.
func oneSource(changed func(flag string) bool, last int, flags ...string) error {
	given := 0
	for _, flag := range flags {
		if changed(flag) {
			given++
		}
	}
	if given != 1 {
		return fmt.Errorf("give exactly one of --%s to select events", strings.Join(flags, ", --"))
	}
	if last < 1 && changed("last") {
		return fmt.Errorf("--last is %d; it must be 1 to 1000", last)
	}
	return nil
}

// printSteps prints the effect of each event on each of its documents. After that, it returns an error if an event
// could not be folded.
func printSteps(out *output, steps []client.PreviewStep) error {
	faults := 0
	for i, step := range steps {
		if i == 0 || steps[i-1].Position != step.Position {
			out.printf("%d %s of %s\n", step.Position, step.Type, step.Stream)
		}
		if step.Item != nil {
			step.DocumentId += " with " + string(step.Item)
		}
		switch {
		case step.Fault != nil:
			faults++
			if step.DocumentId != "" {
				step.DocumentId += ": "
			}
			out.printf("  %scannot be folded: %s: %s\n", step.DocumentId, step.Fault.Where, step.Fault.Message)
			if step.Fault.Before != nil {
				out.printf("  before: %s\n", step.Fault.Before)
			}
		case step.Parked:
			out.printf("  %s: waits, since the document is parked\n", step.DocumentId)
		case step.DocumentId == "":
			out.printf("  not for this projection\n")
		case string(step.Document) == "null":
			out.printf("  %s: no document\n", step.DocumentId)
		default:
			out.printf("  %s: %s\n", step.DocumentId, step.Document)
		}
	}
	if faults > 0 {
		return errors.New("the definition cannot fold every event")
	}
	return nil
}
