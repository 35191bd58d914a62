package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func upcasterCommand() *cobra.Command {
	to := &connection{}
	command := &cobra.Command{
		Use:   "upcaster",
		Short: "Manage upcasters, which convert old events to the newest schema version",
		Long: `Manage a tenant's upcasters; with the operator's key, the shared ones. An upcaster belongs to an event type and a schema version. Its
expression returns the event's data in the next schema version.`,
		Args: cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	command.AddCommand(upcasterList(to), upcasterPut(to), upcasterDelete(to), upcasterPreview(to))
	return command
}

func upcasterList(to *connection) *cobra.Command {
	return list(to, &cobra.Command{
		Use:   "list",
		Short: "List the upcasters",
		Args:  cobra.NoArgs,
	}, func(ctx context.Context, c *call) iter.Seq2[client.Upcaster, error] {
		return pages(func(*string) (*http.Response, error) { return c.ListUpcasters(ctx) },
			func(answer client.UpcasterList) []client.Upcaster { return answer.Upcasters })
	}, table[client.Upcaster]{
		none:   "upcasters",
		header: "TYPE\tVERSION\tSHARED\tEXPRESSION",
		row:    func(u client.Upcaster) []any { return []any{u.Type, u.Version, u.Shared, oneLine(u.Expression)} },
	})
}

func upcasterPut(to *connection) *cobra.Command {
	file, rebuild := "", false
	command := &cobra.Command{
		Use:   "put TYPE VERSION [EXPRESSION]",
		Short: "Create or change an upcaster",
		Long: `Create or change the upcaster of an event type and a schema version. Give the expression as an argument or in a file. It takes effect
at once; existing documents change with their next rebuild.`,
		Example: `  manifold upcaster put OrderPlaced 1 'merge(event.data, {"customer": {"id": event.data.customer}})' --rebuild`,
		Args:    cobra.RangeArgs(2, 3),
		RunE: to.run(func(ctx context.Context, c *call) error {
			version, err := schemaVersion(c.args[1])
			if err != nil {
				return err
			}
			expression, err := upcasterExpression(c.args[2:], file, c.in)
			if err != nil {
				return err
			}
			response, err := c.PutUpcaster(ctx, c.args[0], version, client.PutUpcasterJSONRequestBody{Expression: expression, Rebuild: rebuild})
			change, err := read[client.UpcasterChange](response, err)
			if err != nil {
				return err
			}
			result := "changed or unchanged"
			if response.StatusCode == http.StatusCreated {
				result = "created"
			}
			c.out.printf("%s/%s: %s\n", c.args[0], c.args[1], result)
			return printTouches(c, change.Touches, rebuild)
		}),
	}
	fileFlag(command, &file, "the expression")
	command.Flags().BoolVar(&rebuild, "rebuild", false, "rebuild the affected projections")
	return command
}

func upcasterDelete(to *connection) *cobra.Command {
	rebuild := false
	command := &cobra.Command{
		Use:   "delete TYPE VERSION",
		Short: "Delete an upcaster",
		Args:  cobra.ExactArgs(2),
		RunE: to.run(func(ctx context.Context, c *call) error {
			version, err := schemaVersion(c.args[1])
			if err != nil {
				return err
			}
			change, err := read[client.UpcasterChange](c.DeleteUpcaster(ctx, c.args[0], version, &client.DeleteUpcasterParams{Rebuild: &rebuild}))
			if err != nil {
				return err
			}
			c.out.printf("%s/%s: deleted\n", c.args[0], c.args[1])
			return printTouches(c, change.Touches, rebuild)
		}),
	}
	command.Flags().BoolVar(&rebuild, "rebuild", false, "rebuild the affected projections")
	return command
}

// printTouches prints what a change of an upcaster affects. After that, it returns an error if a projection could not
// be rebuilt.
func printTouches(c *call, touches client.UpcasterTouches, rebuild bool) error {
	failed := 0
	for _, p := range touches.Projections {
		shared, state := "", ""
		if p.Shared {
			shared = " (shared)"
		}
		switch {
		case p.Error != "":
			failed++
			state = ": not rebuilt: " + p.Error
		case p.Rebuild != "":
			state = ": rebuild " + p.Rebuild + " was started"
		case rebuild && p.Shared:
			state = ": the operator rebuilds it"
		}
		c.out.printf("affects projection %s%s%s\n", p.Name, shared, state)
	}
	for _, category := range touches.Aggregates {
		c.out.printf("affects the states of category %s\n", category)
	}
	if failed > 0 {
		return fmt.Errorf("%d of the affected projections could not be rebuilt", failed)
	}
	if !rebuild && len(touches.Projections) > 0 {
		c.out.printf("existing documents do not change until they are rebuilt: --rebuild\n")
	}
	return nil
}

func upcasterPreview(to *connection) *cobra.Command {
	source, file, events := client.PreviewSource{}, "", ""
	command := &cobra.Command{
		Use:   "preview [TYPE VERSION [EXPRESSION]]",
		Short: "Show how upcasters convert events",
		Long: `Show how the current upcasters convert events: those of a stream, the last ones in the log, or those in a file. With a type, a
version and an expression, that upcaster replaces the stored one. Nothing is stored.`,
		Example: `  manifold upcaster preview OrderPlaced 1 'merge(event.data, {"currency": "EUR"})' --last 3`,
		Args:    cobra.MaximumNArgs(3),
		RunE: to.run(func(ctx context.Context, c *call) (err error) {
			if err := oneSource(c.changed, source.Last, "stream", "last", "events"); err != nil {
				return err
			}
			body := client.PreviewUpcasterJSONRequestBody{Source: source}
			switch {
			case len(c.args) == 1:
				return errors.New("give the upcaster's type, version and expression")
			case len(c.args) >= 2:
				body.Type = c.args[0]
				if body.Version, err = schemaVersion(c.args[1]); err != nil {
					return err
				}
				if body.Expression, err = upcasterExpression(c.args[2:], file, c.in); err != nil {
					return err
				}
			}
			if events != "" {
				text, err := os.ReadFile(events)
				if err != nil {
					return err
				}
				if err := json.Unmarshal(text, &body.Source.Events); err != nil {
					return fmt.Errorf("%s: expected a JSON list of events: %w", events, err)
				}
			}
			preview, err := read[client.UpcasterPreviewResult](c.PreviewUpcaster(ctx, body))
			if err != nil {
				return err
			}
			return printUpcasts(c.out, preview.Steps)
		}),
	}
	command.Flags().StringVar(&source.Stream, "stream", "", "the first 1,000 events of this stream")
	command.Flags().IntVar(&source.Last, "last", 0, "this number of the last events whose types have upcasters")
	command.Flags().StringVar(&events, "events", "", `a file with events as a JSON list, such as [{"type": "OrderPlaced", "data": {...}}]`)
	fileFlag(command, &file, "the expression")
	return command
}

// printUpcasts prints the results for events. After that, it returns an error if some events could not be upcast.
func printUpcasts(out *output, steps []client.UpcastStep) error {
	failed := 0
	for _, step := range steps {
		switch {
		case step.Error != "":
			failed++
			out.printf("%s %s version %d\n  before %s\n  FAILS  %s\n", step.Event, step.Type, step.VersionBefore, step.Before, step.Error)
		case step.VersionBefore == step.VersionAfter:
			out.printf("%s %s is unchanged\n", step.Event, step.Type)
		default:
			out.printf("%s %s version %d becomes %d\n  before %s\n  after  %s\n", step.Event, step.Type, step.VersionBefore, step.VersionAfter, step.Before, step.After)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d events cannot be upcast", failed, len(steps))
	}
	return nil
}

func schemaVersion(text string) (int64, error) {
	version, err := strconv.ParseInt(text, 10, 64)
	if err != nil || version < 1 {
		return 0, fmt.Errorf("%q is not a schema version, which is a whole number from 1 on", text)
	}
	return version, nil
}

// upcasterExpression returns the expression of a command line, from an argument or a file.
func upcasterExpression(args []string, file string, stdin io.Reader) (string, error) {
	if (len(args) == 0) == (file == "") {
		return "", errors.New("give the expression either as an argument or with --file")
	}
	if len(args) > 0 {
		return args[0], nil
	}
	text, err := readInput(file, stdin)
	return strings.TrimSpace(string(text)), err
}
