package remote

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func whoamiCommand() *cobra.Command {
	to := &connection{}
	command := withJSON("the answer", &cobra.Command{
		Use:   "whoami",
		Short: "Show which service commands call, and what the key or token may do there",
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
			if token := caller.Token; token != nil {
				c.out.printf("token    %s  %s of %s, until %s\n", token.Name, token.Subject, token.Issuer, token.ExpiresAt.Format(time.RFC3339))
			}
			if caller.Role != "" {
				c.out.printf("role     %s\n", caller.Role)
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
