package remote

import (
	"context"
	"errors"
	"fmt"

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
