package remote

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func webhookSecrets(to *connection) *cobra.Command {
	command := &cobra.Command{
		Use:   "secrets",
		Short: "List, add and remove a webhook's secrets",
		Long: `List, add and remove a webhook's secrets. Each message is signed with every secret. To rotate a secret, add a new one, give it to the
receiver, and remove the old one.`,
		Args: cobra.NoArgs,
	}
	command.AddCommand(secretList(to), secretAdd(to), secretRemove(to))
	completeWebhooks(to, command)
	return command
}

func printSecret(out *output, secret client.WebhookSecret) {
	out.printf("secret %s, shown this once:\n%s\n", secret.Id, secret.Secret)
}

func secretList(to *connection) *cobra.Command {
	return show(to, &cobra.Command{
		Use:   "list NAME",
		Short: "List the secrets that sign a webhook's messages, without their values",
		Args:  cobra.ExactArgs(1),
	}, (*client.Client).GetWebhook, func(_ context.Context, c *call, webhook client.Webhook) error {
		return table[client.WebhookSecret]{
			none:   "secrets",
			header: "SECRET\tCREATED\tEXPIRES",
			row: func(secret client.WebhookSecret) []any {
				expires := "never"
				if secret.ExpiresAt != nil {
					expires = local(*secret.ExpiresAt)
				}
				return []any{secret.Id, local(secret.CreatedAt), expires}
			},
		}.print(c.out, each(webhook.Secrets))
	})
}

func secretAdd(to *connection) *cobra.Command {
	var expireOld time.Duration
	command := &cobra.Command{
		Use:     "add NAME",
		Short:   "Add a secret, and show it this once",
		Example: `  manifold webhook secrets add billing --expire-old 24h`,
		Args:    cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			var body client.NewWebhookSecret
			if c.changed("expire-old") {
				body.ExpireOldAfter = new(expireOld.Seconds())
			}
			secret, err := read[client.WebhookSecret](c.AddWebhookSecret(ctx, c.args[0], body))
			if err != nil {
				return err
			}
			printSecret(c.out, secret)
			return nil
		}),
	}
	command.Flags().DurationVar(&expireOld, "expire-old", 0, "how long the existing secrets still sign, such as 24h (default: until they are removed)")
	return command
}

func secretRemove(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME SECRET-ID",
		Short: "Remove a secret: it no longer signs",
		Args:  cobra.ExactArgs(2),
		RunE: to.run(func(ctx context.Context, c *call) error {
			if err := done(c.RemoveWebhookSecret(ctx, c.args[0], c.args[1])); err != nil {
				return err
			}
			return c.out.printf("%s: removed the secret %s\n", c.args[0], c.args[1])
		}),
	}
}
