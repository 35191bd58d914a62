package remote

import (
	"context"
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
