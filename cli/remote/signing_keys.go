package remote

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func signingKeysCommand() *cobra.Command {
	to := &connection{}
	command := withJSON("the keys", &cobra.Command{
		Use:   "signing-keys",
		Short: "Show the keys that verify the service's signatures, the newest first",
		Long: `Show the keys that verify what the service signs: checkpoints of logs, and receipts. The newest one signs.
Give them to those who verify through a channel other than the service, because someone who controls it could show others.`,
		Args: cobra.NoArgs,
		RunE: to.run(func(ctx context.Context, c *call) error {
			list, err := read[client.SigningKeyList](c.ListSigningKeys(ctx))
			if err != nil {
				return err
			}
			if c.asJSON {
				return c.out.json(list.Keys)
			}
			if len(list.Keys) == 0 {
				c.out.note("no signing keys\n")
			}
			for _, key := range list.Keys {
				if err := c.out.printf("%s  %s\n", key.CreatedAt.Format(time.RFC3339), key.Verifier); err != nil {
					return err
				}
			}
			return nil
		}),
	})
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	command.AddCommand(withJSON("the new key", &cobra.Command{
		Use:   "rotate",
		Short: "Make a new signing key, with the operator's key; the ones before still verify what they signed",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, args []string) error {
			to.asOperator()
			return to.run(func(ctx context.Context, c *call) error {
				key, err := read[client.SigningKey](c.RotateSigningKeys(ctx))
				if err != nil {
					return err
				}
				if c.asJSON {
					return c.out.json(key)
				}
				return c.out.printf("%s signs from now on\n", key.Verifier)
			})(command, args)
		},
	}))
	return command
}
