package cli

import (
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func webhookSecrets(to *connection) *cobra.Command {
	command := &cobra.Command{
		Use:   "secrets",
		Short: "List a webhook's secrets, add one, or remove one",
		Long: `List a webhook's secrets, add one, or remove one. Every message is signed with each of them. To go from one to the next: add one, give
it to the receiver, and remove the old one.`,
		Args: cobra.NoArgs,
	}
	command.AddCommand(secretList(to), secretAdd(to), secretRemove(to))
	return command
}

// tellSecret prints a newly created secret.
func tellSecret(out io.Writer, secret client.WebhookSecret) error {
	_, err := fmt.Fprintf(out, "secret %s, shown this once:\n%s\n", secret.Id, secret.Secret)
	return err
}

func secretList(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "list NAME",
		Short: "List the secrets that sign a webhook's messages, without what they are",
		Args:  cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			webhook, err := readWebhook(command.Context(), service, args[0])
			if err != nil {
				return err
			}
			t := tabwriter.NewWriter(command.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "SECRET\tCREATED\tEXPIRES")
			for _, secret := range webhook.Secrets {
				expires := "never"
				if secret.ExpiresAt != nil {
					expires = secret.ExpiresAt.Local().Format(time.RFC3339)
				}
				fmt.Fprintf(t, "%s\t%s\t%s\n", secret.Id, secret.CreatedAt.Local().Format(time.RFC3339), expires)
			}
			return t.Flush()
		}),
	}
}

func secretAdd(to *connection) *cobra.Command {
	var expireOld time.Duration
	command := &cobra.Command{
		Use:     "add NAME",
		Short:   "Add a secret, and show it this once",
		Example: `  manifold webhook secrets add billing --expire-old 24h`,
		Args:    cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			var body client.NewWebhookSecret
			if command.Flags().Changed("expire-old") {
				body.ExpireOldAfter = new(expireOld.Seconds())
			}
			r, err := service.AddWebhookSecretWithResponse(command.Context(), args[0], body)
			if err != nil {
				return err
			}
			secret, err := answered(r.JSON201, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			return tellSecret(command.OutOrStdout(), secret)
		}),
	}
	command.Flags().DurationVar(&expireOld, "expire-old", 0, "those that are there sign no more after so long, such as 24h; without: until they are removed")
	return command
}

func secretRemove(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME SECRET-ID",
		Short: "Remove a secret: it signs no more",
		Args:  cobra.ExactArgs(2),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			r, err := service.RemoveWebhookSecretWithResponse(command.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if r.StatusCode() != http.StatusNoContent {
				return refusal(r.Status(), r.Body)
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "%s: removed the secret %s\n", args[0], args[1])
			return err
		}),
	}
}
