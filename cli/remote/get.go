package remote

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

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
