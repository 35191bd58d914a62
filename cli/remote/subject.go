package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func subjectCommand() *cobra.Command {
	to := &connection{}
	command := &cobra.Command{
		Use:   "subject",
		Short: "Erase or export what the log says about a person",
		Long: `Erase or export the events that have the tag subject:ID. Erasing and approving need the scope subjects:erase, exporting
subjects:read.`,
		Args: cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY")
	command.AddCommand(subjectErase(to), subjectExport(to), subjectErasures(to), subjectErasure(to),
		subjectDecide(to, "approve", "Approve an erasure that somebody else has requested", (*client.Client).ApproveErasure),
		subjectDecide(to, "cancel", "Cancel an erasure that awaits approval", (*client.Client).CancelErasure))
	return command
}

func subjectErase(to *connection) *cobra.Command {
	body, confirmed, wait := client.NewErasure{}, false, false
	command := &cobra.Command{
		Use:   "erase ID",
		Short: "Erase a person's data for good, or show what that would touch",
		Long: `Erase the data of all events that have the tag subject:ID, and everything that was made from it. The
schema of an event's type names its personal fields (manifold schema put --personal); without that, all data and
metadata is erased. Erasing cannot be undone: try it with --dry-run, and confirm it with --yes.`,
		Example: `  manifold subject erase c-17 --reason "request 4711" --dry-run
  manifold subject erase c-17 --reason "request 4711" --yes --wait`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			if !confirmed && !body.DryRun {
				return errors.New("erasing cannot be undone; re-run with --dry-run to see what it would touch, or with --yes to confirm")
			}
			if body.DryRun {
				preview, err := read[client.ErasurePreview](c.EraseSubject(ctx, c.args[0], body))
				if err != nil {
					return err
				}
				for _, name := range slices.Sorted(maps.Keys(preview.Events)) {
					c.out.printf("events of type %s: %d\n", name, preview.Events[name])
				}
				return c.out.printf("streams: %d; up to position %d; projections to rebuild: %s\n", preview.Streams, preview.Until, namesOrNone(preview.Projections))
			}
			erasure, err := read[client.Erasure](c.EraseSubject(ctx, c.args[0], body))
			if err != nil {
				return err
			}
			for wait && erasure.State == "running" {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Second):
				}
				if erasure, err = read[client.Erasure](c.GetErasure(ctx, erasure.Id)); err != nil {
					return err
				}
			}
			return printErasure(c.out, erasure)
		}),
	}
	flags := command.Flags()
	flags.StringVar(&body.Reason, "reason", "", "why; it is kept, so it must not contain personal data")
	flags.StringVar(&body.What, "what", "personal", "personal: the fields that schemas name; data: all data and metadata")
	flags.StringVar(&body.Id, "id", "", "a UUID for the erasure, so that a repeated command does not begin another one")
	flags.BoolVar(&body.DryRun, "dry-run", false, "only show what would be touched")
	flags.BoolVar(&body.Approval, "approval", false, "begin only when another actor has approved it")
	flags.BoolVar(&body.AcceptLoss, "accept-loss", false, "rebuild documents even if retention has removed events that they need")
	flags.BoolVar(&confirmed, "yes", false, "confirm")
	flags.BoolVar(&wait, "wait", false, "wait for its end, and print the receipt")
	return command
}

func namesOrNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func printErasure(out *output, e client.Erasure) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	line("erasure", "%s", e.Id)
	line("state", "%s", erasureState(e))
	line("reason", "%s", e.Reason)
	line("requested by", "%s", e.RequestedBy)
	if e.ApprovedBy != "" {
		line("approved by", "%s", e.ApprovedBy)
	}
	line("events", "%d, up to position %d", erasedEvents(e), e.Until)
	if e.Problem != "" {
		line("problem", "%s", e.Problem)
	}
	if err := t.Flush(); err != nil || e.Receipt == "" {
		return err
	}
	return out.printf("\n%s", e.Receipt)
}

func erasureState(e client.Erasure) string {
	if e.State == "running" {
		return e.State + " (" + e.Step + ")"
	}
	return e.State
}

func erasedEvents(e client.Erasure) (n int64) {
	for _, of := range e.Counts.Events {
		n += of
	}
	return n + e.Counts.DerivedEvents
}

func subjectExport(to *connection) *cobra.Command {
	file := ""
	command := &cobra.Command{
		Use:   "export ID",
		Short: "Export a person's events, one JSON object a line",
		Args:  cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			export := func(out io.Writer) error {
				response, err := c.ExportSubject(ctx, c.args[0])
				if err != nil {
					return err
				}
				if response.StatusCode != http.StatusOK {
					return done(response, nil)
				}
				defer response.Body.Close()
				if _, err := io.Copy(out, response.Body); err != nil {
					return fmt.Errorf("the export was cut off: %w", err)
				}
				return nil
			}
			if file == "" || file == "-" {
				return export(c.out)
			}
			return writeFile(file, 0o600, export)
		}),
	}
	command.Flags().StringVarP(&file, "output", "o", "", "the file to write (default: standard output)")
	return command
}

func subjectErasures(to *connection) *cobra.Command {
	return list(to, &cobra.Command{
		Use:   "erasures",
		Short: "List erasures, the newest first",
		Args:  cobra.NoArgs,
	}, func(ctx context.Context, c *call) iter.Seq2[client.Erasure, error] {
		return pages(func(token *string) (*http.Response, error) {
			return c.ListErasures(ctx, &client.ListErasuresParams{PageToken: token})
		}, func(answer client.ErasureList) []client.Erasure { return answer.Erasures })
	}, table[client.Erasure]{
		none:   "erasures",
		header: "ERASURE\tSTATE\tEVENTS\tREQUESTED\tBY\tREASON",
		row: func(e client.Erasure) []any {
			return []any{e.Id, erasureState(e), erasedEvents(e), e.CreatedAt.Format(time.RFC3339), e.RequestedBy, e.Reason}
		},
	})
}

func subjectErasure(to *connection) *cobra.Command {
	return withJSON("the erasure", show(to, &cobra.Command{
		Use:   "erasure ERASURE",
		Short: "Show an erasure, and its receipt",
		Args:  cobra.ExactArgs(1),
	}, (*client.Client).GetErasure, func(_ context.Context, c *call, e client.Erasure) error { return printErasure(c.out, e) }))
}

func subjectDecide(to *connection, verb, short string, decide func(*client.Client, context.Context, string, ...client.RequestEditorFn) (*http.Response, error)) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " ERASURE",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			erasure, err := read[client.Erasure](decide(c.Client, ctx, c.args[0]))
			if err != nil {
				return err
			}
			return printErasure(c.out, erasure)
		}),
	}
}
