package remote

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// completionTime is how long a shell waits for the service.
const completionTime = 2 * time.Second

// completeNames has the shell complete the first argument of the subcommands that begin with NAME, with names that the
// service lists. It looks at the subcommands that the command has by then.
func completeNames[P any](to *connection, command *cobra.Command, ask func(ctx context.Context, c *client.Client) (*http.Response, error), names func(page P) []string) {
	complete := func(inner *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		service, err := to.open()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(inner.Context(), completionTime)
		defer cancel()
		page, err := read[P](ask(ctx, service))
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var matching []string
		for _, name := range names(page) {
			if strings.HasPrefix(name, begun) {
				matching = append(matching, name)
			}
		}
		return matching, cobra.ShellCompDirectiveNoFileComp
	}
	for _, inner := range append(command.Commands(), command) {
		if _, argument, _ := strings.Cut(inner.Use, " "); strings.HasPrefix(argument, "NAME") || strings.HasPrefix(argument, "PROJECTION") {
			inner.ValidArgsFunction = complete
		}
	}
}

// namesOf returns the names of the items of a page.
func namesOf[T any](items []T, name func(T) string) []string {
	names := make([]string, len(items))
	for i, item := range items {
		names[i] = name(item)
	}
	return names
}

func completeProjections(to *connection, command *cobra.Command) {
	completeNames(to, command, func(ctx context.Context, c *client.Client) (*http.Response, error) { return c.ListProjections(ctx) },
		func(page client.ProjectionList) []string {
			return namesOf(page.Projections, func(p client.Projection) string { return p.Name })
		})
}

func completeGroups(to *connection, command *cobra.Command) {
	completeNames(to, command, func(ctx context.Context, c *client.Client) (*http.Response, error) {
		return c.ListSubscriptions(ctx, &client.ListSubscriptionsParams{PageSize: new(pageSize)})
	}, func(page client.SubscriptionList) []string {
		return namesOf(page.Subscriptions, func(s client.Subscription) string { return s.Name })
	})
}

func completeWebhooks(to *connection, command *cobra.Command) {
	completeNames(to, command, func(ctx context.Context, c *client.Client) (*http.Response, error) {
		return c.ListWebhooks(ctx, &client.ListWebhooksParams{PageSize: new(pageSize)})
	}, func(page client.WebhookList) []string {
		return namesOf(page.Webhooks, func(w client.Webhook) string { return w.Name })
	})
}
