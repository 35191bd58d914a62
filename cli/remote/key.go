package remote

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// keyCommand is for operators, who name a tenant, and for a tenant's administrators, who do not.
func keyCommand() *cobra.Command {
	to, tenant := &connection{}, ""
	command := &cobra.Command{
		Use:   "key",
		Short: "Create, list and revoke keys",
		Long: `Create, list and revoke keys. With --tenant and the operator's key, they are that tenant's keys; without --tenant, those of your own
tenant, which needs a key with the scope tenant:admin.`,
		Args: cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	command.PersistentPreRun = func(*cobra.Command, []string) {
		// If the environment has both keys, a tenant's name means that the caller acts as operator.
		if tenant != "" {
			to.asOperator()
		}
	}
	command.PersistentFlags().StringVar(&tenant, "tenant", "", "the tenant's name or id")
	command.AddCommand(keyCreate(to, &tenant), keyList(to, &tenant), keyRevoke(to, &tenant))
	return command
}

// keyScopes are the scopes of tenants' keys, for messages.
const keyScopes = "events:append, events:read, events:consume, documents:read, projections:write, subscriptions:write and tenant:admin"

func keyCreate(to *connection, of *string) *cobra.Command {
	var scopes []string
	command := &cobra.Command{
		Use:   "create NAME --scope SCOPE[,SCOPE...]",
		Short: "Create a key, and print it this once",
		Long: `Create a key, and print it this once. Scopes are ` + keyScopes + `.

A scope for events or subscriptions can be limited to categories: events:append:heartbeat.* covers heartbeat.web, but not
heartbeat.web.eu. * matches one segment between dots; ** matches any number of segments, including none. A scope that begins
with ! denies its categories. The first scope that matches a category decides; a category that no scope matches is denied.
Put a scope with * or ! in quotes, since the shell interprets them.`,
		Example: `  manifold key create backend --scope events:append,events:read
  manifold key create probe --scope 'events:append:heartbeat.*'
  manifold key create analytics --scope '!events:read:billing.**' --scope 'events:read:**'`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			if len(scopes) == 0 {
				return errors.New("no scope: give --scope one or more of " + keyScopes)
			}
			body := client.NewKey{Name: c.args[0], Scopes: scopes}
			response, err := ofTenant(ctx, c, *of,
				func() (*http.Response, error) { return c.CreateKey(ctx, body) },
				func(id string) (*http.Response, error) { return c.CreateTenantKey(ctx, id, body) })
			key, err := read[client.CreatedKey](response, err)
			if err != nil {
				return err
			}
			return c.out.printf("%s\n", key.Key)
		}),
	}
	command.Flags().StringSliceVar(&scopes, "scope", nil, "what the key may do, in order; may be repeated")
	return command
}

// ofTenant calls own if nameOrID is empty. Otherwise it calls other with the id of the tenant of that name or id.
func ofTenant(ctx context.Context, c *call, nameOrID string, own func() (*http.Response, error), other func(id string) (*http.Response, error)) (*http.Response, error) {
	if nameOrID == "" {
		return own()
	}
	tenant, err := findTenant(ctx, c, nameOrID)
	if err != nil {
		return nil, err
	}
	return other(tenant.Id)
}

func keyList(to *connection, of *string) *cobra.Command {
	return list(to, &cobra.Command{
		Use:   "list",
		Short: "List the keys, without their secrets",
		Args:  cobra.NoArgs,
	}, func(ctx context.Context, c *call) iter.Seq2[client.Key, error] {
		return pages(func(token *string) (*http.Response, error) {
			return ofTenant(ctx, c, *of, func() (*http.Response, error) {
				return c.ListKeys(ctx, &client.ListKeysParams{PageSize: new(pageSize), PageToken: token})
			}, func(id string) (*http.Response, error) {
				return c.ListTenantKeys(ctx, id, &client.ListTenantKeysParams{PageSize: new(pageSize), PageToken: token})
			})
		}, func(page client.KeyList) []client.Key { return page.Keys })
	}, table[client.Key]{
		header: "ID\tNAME\tSCOPES\tCREATED\tREVOKED",
		row: func(key client.Key) []any {
			revoked := ""
			if key.RevokedAt != nil {
				revoked = key.RevokedAt.Format(time.RFC3339)
			}
			return []any{key.Id, key.Name, strings.Join(key.Scopes, ","), key.CreatedAt.Format(time.RFC3339), revoked}
		},
	})
}

func keyRevoke(to *connection, of *string) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke a key",
		Args:  cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			return done(ofTenant(ctx, c, *of,
				func() (*http.Response, error) { return c.RevokeKey(ctx, c.args[0]) },
				func(id string) (*http.Response, error) { return c.RevokeTenantKey(ctx, id, c.args[0]) }))
		}),
	}
}
