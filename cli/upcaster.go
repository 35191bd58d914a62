package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
		Short: "Put, list, try out and delete upcasters, which bring old events into the form that expressions are written for",
		Long: `Put, list, try out and delete a tenant's upcasters; with the operator's key, the shared ones. An upcaster is for an event type
and a schema version: its expression gives the data as the next schema version has it.`,
		Args: cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	command.AddCommand(upcasterList(to), upcasterPut(to), upcasterDelete(to), upcasterPreview(to))
	return command
}

func upcasterList(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the upcasters",
		Args:  cobra.NoArgs,
		RunE: to.withService(func(command *cobra.Command, _ []string, service *client.ClientWithResponses) error {
			r, err := service.ListUpcastersWithResponse(command.Context())
			if err != nil {
				return err
			}
			list, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			return writeTable(command.OutOrStdout(), "TYPE\tVERSION\tSHARED\tEXPRESSION", list.Upcasters, func(u client.Upcaster) []any {
				return []any{u.Type, u.Version, u.Shared, oneLine(u.Expression)}
			})
		}),
	}
}

func upcasterPut(to *connection) *cobra.Command {
	file, rebuild := "", false
	command := &cobra.Command{
		Use:   "put TYPE VERSION [EXPRESSION]",
		Short: "Create or change an upcaster",
		Long: `Create or change the upcaster for an event type and a schema version. The expression is an argument, or in a file. It is in
force at once; documents that are there change by a rebuild.`,
		Example: `  manifold upcaster put OrderPlaced 1 'merge(event.data, {"customer": {"id": event.data.customer}})' --rebuild`,
		Args:    cobra.RangeArgs(2, 3),
		RunE: func(command *cobra.Command, args []string) error {
			version, err := schemaVersion(args[1])
			if err != nil {
				return err
			}
			expression, err := upcasterExpression(args[2:], file, command.InOrStdin())
			if err != nil {
				return err
			}
			service, err := to.open()
			if err != nil {
				return err
			}
			r, err := service.PutUpcasterWithResponse(command.Context(), args[0], version, client.PutUpcasterJSONRequestBody{Expression: expression, Rebuild: rebuild})
			if err != nil {
				return err
			}
			change, what := r.JSON200, "changed, or as it was"
			if r.JSON201 != nil {
				change, what = r.JSON201, "created"
			}
			if change == nil {
				return refusal(r.Status(), r.Body)
			}
			return printTouches(command.OutOrStdout(), args[0], version, what, change.Touches, rebuild)
		},
	}
	command.Flags().StringVarP(&file, "file", "f", "", "the file with the expression; - is the standard input")
	command.Flags().BoolVar(&rebuild, "rebuild", false, "rebuild the projections that it touches")
	return command
}

func upcasterDelete(to *connection) *cobra.Command {
	rebuild := false
	command := &cobra.Command{
		Use:   "delete TYPE VERSION",
		Short: "Delete an upcaster",
		Args:  cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			version, err := schemaVersion(args[1])
			if err != nil {
				return err
			}
			service, err := to.open()
			if err != nil {
				return err
			}
			r, err := service.DeleteUpcasterWithResponse(command.Context(), args[0], version, &client.DeleteUpcasterParams{Rebuild: &rebuild})
			if err != nil {
				return err
			}
			change, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			return printTouches(command.OutOrStdout(), args[0], version, "deleted", change.Touches, rebuild)
		},
	}
	command.Flags().BoolVar(&rebuild, "rebuild", false, "rebuild the projections that it touched")
	return command
}

// printTouches prints the result for an upcaster. After that, it returns an error if a projection could not be
// rebuilt.
func printTouches(out io.Writer, eventType string, version int64, what string, touches client.UpcasterTouches, rebuild bool) error {
	fmt.Fprintf(out, "%s/%d: %s\n", eventType, version, what)
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
		fmt.Fprintf(out, "touches projection %s%s%s\n", p.Name, shared, state)
	}
	for _, category := range touches.Aggregates {
		fmt.Fprintf(out, "touches the states of category %s\n", category)
	}
	if failed > 0 {
		return fmt.Errorf("%d of the projections that it touches could not be rebuilt", failed)
	}
	if !rebuild && len(touches.Projections) > 0 {
		fmt.Fprintln(out, "documents that are there stay as they are until they are rebuilt: --rebuild")
	}
	return nil
}

func upcasterPreview(to *connection) *cobra.Command {
	source, file, events := client.PreviewSource{}, "", ""
	command := &cobra.Command{
		Use:   "preview [TYPE VERSION [EXPRESSION]]",
		Short: "Show what upcasters make of events",
		Long: `Show what the upcasters in force make of events: of a stream, of the last ones in the log, or of events in a file as a JSON
list. With a type, a version and an expression, that upcaster is tried in the place of the one that is there. Nothing is kept.`,
		Example: `  manifold upcaster preview OrderPlaced 1 'merge(event.data, {"currency": "EUR"})' --last 3`,
		Args:    cobra.MaximumNArgs(3),
		RunE: func(command *cobra.Command, args []string) error {
			if err := oneSource(command, "stream", "last", "events"); err != nil {
				return err
			}
			body := client.PreviewUpcasterJSONRequestBody{Source: source}
			if len(args) == 1 {
				return errors.New("an upcaster to be tried has a type, a version and an expression")
			}
			var err error
			if len(args) >= 2 {
				body.Type = args[0]
				if body.Version, err = schemaVersion(args[1]); err != nil {
					return err
				}
				if body.Expression, err = upcasterExpression(args[2:], file, command.InOrStdin()); err != nil {
					return err
				}
			}
			if events != "" {
				text, err := os.ReadFile(events)
				if err != nil {
					return err
				}
				if err := json.Unmarshal(text, &body.Source.Events); err != nil {
					return fmt.Errorf("%s: it is no JSON list of events: %w", events, err)
				}
			}
			service, err := to.open()
			if err != nil {
				return err
			}
			r, err := service.PreviewUpcasterWithResponse(command.Context(), body)
			if err != nil {
				return err
			}
			preview, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			return printUpcasts(command.OutOrStdout(), preview.Steps)
		},
	}
	command.Flags().StringVar(&source.Stream, "stream", "", "the first 1,000 events of this stream")
	command.Flags().IntVar(&source.Last, "last", 0, "the last so many events of the types that have upcasters")
	command.Flags().StringVar(&events, "events", "", `a file with events, as in [{"type": "OrderPlaced", "data": {...}}]`)
	command.Flags().StringVarP(&file, "file", "f", "", "the file with the expression; - is the standard input")
	return command
}

// printUpcasts prints the results for events. After that, it returns an error if some events could not be upcast.
func printUpcasts(out io.Writer, steps []client.UpcastStep) error {
	failed := 0
	for _, step := range steps {
		var err error
		switch {
		case step.Error != "":
			failed++
			_, err = fmt.Fprintf(out, "%s %s version %d\n  before %s\n  FAILS  %s\n", step.Event, step.Type, step.VersionBefore, step.Before, step.Error)
		case step.VersionBefore == step.VersionAfter:
			_, err = fmt.Fprintf(out, "%s %s stays as it is\n", step.Event, step.Type)
		default:
			_, err = fmt.Fprintf(out, "%s %s version %d becomes %d\n  before %s\n  after  %s\n", step.Event, step.Type, step.VersionBefore, step.VersionAfter, step.Before, step.After)
		}
		if err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d events do not go through", failed, len(steps))
	}
	return nil
}

func schemaVersion(text string) (int64, error) {
	version, err := strconv.ParseInt(text, 10, 64)
	if err != nil || version < 1 {
		return 0, fmt.Errorf("%q is not a schema version; the first is 1", text)
	}
	return version, nil
}

// upcasterExpression returns the expression of a command line, from an argument or a file.
func upcasterExpression(args []string, file string, stdin io.Reader) (string, error) {
	if (len(args) == 0) == (file == "") {
		return "", errors.New("give the expression as an argument, or in a file: --file")
	}
	if len(args) > 0 {
		return args[0], nil
	}
	text, err := readInput(file, stdin)
	return strings.TrimSpace(string(text)), err
}
