package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func snapshotCommand() *cobra.Command {
	to := &connection{}
	command := &cobra.Command{
		Use:   "snapshot",
		Short: "List, show and take snapshots of streams' states",
		Args:  cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY")
	command.AddCommand(snapshotList(to), snapshotShow(to), snapshotTake(to))
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
		none:   "snapshots",
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
			return showSnapshot(c, answer)
		}),
	})
	command.Flags().Int64Var(&version, "version", 0, "the newest snapshot at or before this version")
	command.Flags().StringVar(&tag, "tag", "", "only snapshots with this tag, which names what has folded them")
	return command
}

func showSnapshot(c *call, s client.Snapshot) error {
	if c.asJSON {
		return c.out.json(s)
	}
	fmt.Fprintf(c.people, "version %d of %s, taken at %s, tag %s\n", s.Version, s.Stream, local(s.TakenAt), s.Tag)
	return printIndented(c.out, s.State)
}

func snapshotTake(to *connection) *cobra.Command {
	var state, tag string
	var version int64
	var acceptLoss bool
	command := withJSON("the snapshot", &cobra.Command{
		Use:   "take STREAM",
		Short: "Take a snapshot of a stream's state now",
		Long: `Fold a stream to its newest event with its category's aggregate, and store the state as a snapshot. Manifold does so by itself
every 100 events, or as the aggregate's snapshotEvery says.

With --state, store a state that you have folded yourself, with your own tag. Manifold does not load states from it.`,
		Example: `  manifold snapshot take order-7
  manifold snapshot take order-7 --state '{"total": 25}' --version 2 --tag orders-service-7`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			params := &client.TakeSnapshotParams{}
			if acceptLoss {
				params.AcceptLoss = &acceptLoss
			}
			if !c.changed("state") {
				if c.changed("version") || c.changed("tag") {
					return errors.New("--version and --tag need --state; without it, Manifold folds the newest version")
				}
				answer, err := read[client.Snapshot](c.TakeSnapshotWithBody(ctx, c.args[0], params, "application/json", http.NoBody))
				if err != nil {
					return err
				}
				return showSnapshot(c, answer)
			}
			if !json.Valid([]byte(state)) {
				return errors.New(`--state is not JSON; a text needs quotes: '"text"'`)
			}
			own := client.NewSnapshot{State: json.RawMessage(state), Version: version, Tag: tag}
			answer, err := read[client.Snapshot](c.TakeSnapshot(ctx, c.args[0], params, own))
			if err != nil {
				return err
			}
			return showSnapshot(c, answer)
		}),
	})
	command.Flags().StringVar(&state, "state", "", "a state in JSON that you have folded yourself; needs --version and --tag")
	command.Flags().Int64Var(&version, "version", 0, "with --state: the version of the last event in it")
	command.Flags().StringVar(&tag, "tag", "", "with --state: what has folded it, such as a release of your program")
	command.Flags().BoolVar(&acceptLoss, "accept-loss", false, "continue where retention has removed events that it needs")
	return command
}
