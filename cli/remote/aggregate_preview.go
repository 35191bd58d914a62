package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/projection/folding"
)

func aggregatePreview(to *connection) *cobra.Command {
	f := &commandFlags{connection: to}
	stream, events, name, version := "", "", "", int64(0)
	command := &cobra.Command{
		Use:   "preview FILE --stream STREAM | --events FILE",
		Short: "Try a definition on events, and show the effect of each",
		Long: `Fold a stream's first thousand events, or those in a file, with a definition, and show the state after each event. With --command,
decide a command on the last state, and show its rules and events. The definition need not be stored, and nothing is stored.

The exit code is 1 if an event cannot be folded, or the command cannot be decided. A rejection is a result.`,
		Example: `  manifold aggregate preview order.yaml --stream order-1001
  manifold aggregate preview order.yaml --stream order-1001 --command Pay --data '{"amount": 25}'`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			if c.changed("stream") && c.changed("events") || stream == "" && events == "" {
				return errors.New("give exactly one of --stream, --events to select events")
			}
			body := make(map[string]any)
			if stream != "" {
				body["stream"] = stream
			}
			if events != "" {
				text, err := os.ReadFile(events)
				if err != nil {
					return err
				}
				var list []json.RawMessage
				if err := json.Unmarshal(text, &list); err != nil {
					return fmt.Errorf("%s: expected a JSON list of events: %w", events, err)
				}
				body["events"] = append([]json.RawMessage{}, list...)
			}
			if c.changed("version") {
				body["version"] = version
			}
			if name != "" {
				command, err := f.body(c)
				if err != nil {
					return err
				}
				command["name"] = name
				body["command"] = command
			}
			result, file, err := previewAggregate(ctx, c, c.args[0], body)
			if err != nil {
				return err
			}
			if c.asJSON {
				err = c.out.json(result)
			} else {
				err = printAggregatePreview(c.out, result)
			}
			if n := len(result.Steps); err == nil && n > 0 && result.Steps[n-1].Fault != nil {
				err = errors.New("the definition cannot fold every event")
			}
			if err == nil && result.Problem != nil {
				err = inDefinition(file, problemError(*result.Problem))
			}
			return err
		}),
	}
	flags := command.Flags()
	flags.StringVar(&stream, "stream", "", "the first thousand events of this stream")
	flags.StringVar(&events, "events", "", `a file with events as a JSON list, such as [{"type": "OrderPlaced", "data": {...}}]`)
	flags.Int64Var(&version, "version", 0, "with --stream: the last version to read")
	flags.StringVar(&name, "command", "", "a command of the definition")
	f.bindBody(flags)
	return withJSON("the result", command)
}

// previewAggregate tries the definition in a file on what body says.
func previewAggregate(ctx context.Context, c *call, path string, body map[string]any) (result client.AggregatePreviewResult, file folding.AggregateFile, err error) {
	if file, err = folding.ReadAggregate(path); err != nil {
		return result, file, err
	}
	body["definition"] = file.JSON
	text, err := json.Marshal(body)
	if err != nil {
		return result, file, err
	}
	result, err = read[client.AggregatePreviewResult](c.PreviewAggregateWithBody(ctx, "application/json", bytes.NewReader(text)))
	return result, file, inDefinition(file, err)
}

// inDefinition adds file and line to an error at a place in the definition.
func inDefinition(file folding.AggregateFile, err error) error {
	if refused, ok := errors.AsType[*refused](err); ok {
		if place, ok := strings.CutPrefix(refused.Where, "definition."); ok {
			refused.Where = place
			return &folding.FileError{Path: file.Path, Line: file.Line(place), Err: refused}
		}
	}
	return err
}

// printAggregatePreview prints the effect of each event, and what the command decides.
func printAggregatePreview(out *output, result client.AggregatePreviewResult) error {
	for _, step := range result.Steps {
		out.printf("%d %s of %s\n", step.Position, step.Type, step.Stream)
		switch {
		case step.Fault != nil:
			out.printf("  cannot be folded: %s: %s\n", step.Fault.Where, step.Fault.Message)
			out.printf("  before: %s\n", result.State)
		case step.State == nil:
			out.printf("  not of this stream\n")
		default:
			out.printf("  %s\n", step.State)
		}
	}
	if result.Outcome == nil {
		return nil
	}
	var outcome client.CommandOutcome
	if err := json.Unmarshal(result.Outcome, &outcome); err != nil {
		return err
	}
	printExplained(out, outcome)
	return nil
}
