package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func aggregateState(to *connection) *cobra.Command {
	var version int64
	var moment string
	var acceptLoss bool
	command := &cobra.Command{
		Use:   "state STREAM",
		Short: "Show a stream's state, folded by its aggregate's definition",
		Example: `  manifold aggregate state order-1001
  manifold aggregate state order-1001 --version 5
  manifold aggregate state order-1001 --at 90m`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			if version < 1 && c.changed("version") {
				return errors.New("--version must be at least 1")
			}
			at, err := parseMoment(moment)
			if err != nil {
				return fmt.Errorf("--at %w", err)
			}
			answer, err := read[client.State](c.GetState(ctx, c.args[0], &client.GetStateParams{Version: given(version), At: at, AcceptLoss: given(acceptLoss)}))
			if err != nil {
				return err
			}
			if c.asJSON {
				return c.out.json(answer)
			}
			fmt.Fprintf(c.people, "version %d of %s, from the snapshot of version %d and %s\n",
				answer.Version, answer.Stream, answer.SnapshotVersion, howMany(answer.EventsRead, "event"))
			if answer.Loss != nil {
				fmt.Fprintln(c.people, "events that retention has removed are missing in it")
			}
			return printIndented(c.out, answer.State)
		}),
	}
	command.Flags().Int64Var(&version, "version", 0, "the state after this version (default: the newest)")
	command.Flags().StringVar(&moment, "at", "", "the state as recorded at this time (2026-03-01, 2026-03-01T09:30:00Z), or this long ago (90m)")
	command.Flags().BoolVar(&acceptLoss, "accept-loss", false, "continue where retention has removed events that it needs")
	exclusiveFlags(command, "version", "at")
	return withJSON("the state", command)
}

func snapshotCommand() *cobra.Command {
	to := &connection{}
	command := &cobra.Command{
		Use:   "snapshot",
		Short: "List and show the snapshots of streams' states",
		Args:  cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY")
	command.AddCommand(snapshotList(to), snapshotShow(to))
	return command
}

func snapshotList(to *connection) *cobra.Command {
	return withJSON("the snapshots", list(to, &cobra.Command{
		Use:   "list STREAM",
		Short: "List the snapshots of a stream",
		Args:  cobra.ExactArgs(1),
	}, func(ctx context.Context, c *call) iter.Seq2[client.ListedSnapshot, error] {
		return pages(func(token *string) (*http.Response, error) {
			return c.ListSnapshots(ctx, c.args[0], &client.ListSnapshotsParams{PageSize: new(pageSize), PageToken: token})
		}, func(answer client.SnapshotList) []client.ListedSnapshot { return answer.Snapshots })
	}, table[client.ListedSnapshot]{
		header: "VERSION\tTAKEN\tTAG",
		row:    func(s client.ListedSnapshot) []any { return []any{s.Version, local(s.TakenAt), s.Tag} },
	}))
}

func snapshotShow(to *connection) *cobra.Command {
	var version int64
	var tag string
	command := withJSON("the snapshot", &cobra.Command{
		Use:   "show STREAM",
		Short: "Show the newest snapshot of a stream, or the newest up to a version",
		Args:  cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			if version < 1 && c.changed("version") {
				return errors.New("--version must be at least 1")
			}
			answer, err := read[client.Snapshot](c.GetLatestSnapshot(ctx, c.args[0], &client.GetLatestSnapshotParams{Version: given(version), Tag: given(tag)}))
			if err != nil {
				return err
			}
			if c.asJSON {
				return c.out.json(answer)
			}
			fmt.Fprintf(c.people, "version %d of %s, taken at %s, tag %s\n", answer.Version, answer.Stream, local(answer.TakenAt), answer.Tag)
			return printIndented(c.out, answer.State)
		}),
	})
	command.Flags().Int64Var(&version, "version", 0, "the newest snapshot at or before this version")
	command.Flags().StringVar(&tag, "tag", "", "only snapshots with this tag, which names what has folded them")
	return command
}

// getCommand is for one document; projection documents is for many.
func getCommand() *cobra.Command {
	to := &connection{}
	var fields string
	var minPosition int64
	command := withJSON("the document", &cobra.Command{
		Use:   "get PROJECTION ID",
		Short: "Show one document of a projection",
		Example: `  manifold get orders order-1001
  manifold get orders order-1001 --fields total,customer.name --min-position 4711`,
		Args: cobra.ExactArgs(2),
		RunE: to.run(func(ctx context.Context, c *call) error {
			answer, err := read[client.Document](c.GetDocument(ctx, c.args[0], c.args[1], &client.GetDocumentParams{
				Fields: given(fields), MinPosition: given(minPosition),
			}))
			if err != nil {
				return err
			}
			if c.asJSON {
				return c.out.json(answer)
			}
			return printIndented(c.out, json.RawMessage(answer.Document))
		}),
	})
	to.bind(command, "MANIFOLD_KEY")
	completeProjections(to, command)
	command.Flags().StringVar(&fields, "fields", "", "paths of the fields to return, such as total,customer.name (default: all)")
	command.Flags().Int64Var(&minPosition, "min-position", 0, "wait until the projection has seen the log up to this position")
	return command
}

func whoamiCommand() *cobra.Command {
	to := &connection{}
	command := withJSON("the answer", &cobra.Command{
		Use:   "whoami",
		Short: "Show which service commands call, and what the key may do there",
		Args:  cobra.NoArgs,
		RunE: to.run(func(ctx context.Context, c *call) error {
			caller, err := read[client.Caller](c.Whoami(ctx))
			if err != nil {
				return err
			}
			if c.asJSON {
				return c.out.json(caller)
			}
			c.out.printf("service  %s\n", to.url)
			if caller.Tenant != nil {
				c.out.printf("tenant   %s  %s\n", caller.Tenant.Name, caller.Tenant.Id)
			}
			if caller.Key != nil {
				c.out.printf("key      %s  %s\n", caller.Key.Name, caller.Key.Id)
			}
			for _, scope := range caller.Scopes {
				c.out.printf("scope    %s\n", scope)
			}
			return nil
		}),
	})
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	return command
}

// printIndented writes JSON over several lines.
func printIndented(out *output, value json.RawMessage) error {
	var text bytes.Buffer
	if err := json.Indent(&text, value, "", "  "); err != nil {
		return err
	}
	return out.printf("%s\n", text.Bytes())
}
