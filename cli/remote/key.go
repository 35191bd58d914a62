package remote

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
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
		Short: "Create, list, limit, rotate and revoke keys",
		Long: `Create, list, limit, rotate and revoke keys. With --tenant and the operator's key, they are that tenant's keys; without --tenant, those of your own
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
	command.AddCommand(keyCreate(to, &tenant), keyList(to, &tenant), keyLimit(to, &tenant), keyRotate(to, &tenant), keyRevoke(to, &tenant))
	return command
}

// keyScopes are the scopes of tenants' keys, for messages.
const keyScopes = "events:append, events:read, events:consume, commands:send, documents:read, projections:write, subscriptions:write, tenant:admin, audit:read, subjects:erase and subjects:read"

func keyCreate(to *connection, of *string) *cobra.Command {
	var scopes, networks []string
	var expires string
	var limited limitsFlags
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
  manifold key create partner --scope events:append --expires 90d --network 203.0.113.0/24
  manifold key create analytics --scope '!events:read:billing.**' --scope 'events:read:**'`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			if len(scopes) == 0 {
				return errors.New("no scope: give --scope one or more of " + keyScopes)
			}
			expiresAt, err := parseExpiry(expires, time.Now())
			if err != nil {
				return fmt.Errorf("--expires %w", err)
			}
			limits, err := limited.limits()
			if err != nil {
				return err
			}
			body := client.NewKey{Name: c.args[0], Scopes: scopes, Networks: networks, ExpiresAt: expiresAt}
			if limits != (client.Limits{}) {
				body.Limits = &limits
			}
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
	command.Flags().StringVar(&expires, "expires", "", "when the key stops working: a time, or from now, such as 90d or 12h (default: never)")
	command.Flags().StringSliceVar(&networks, "network", nil, "a network from which the key works, such as 203.0.113.0/24; may be repeated (default: all)")
	limited.bind(command)
	return command
}

// parseExpiry parses a time, or how long from now it is. An empty text is nil.
func parseExpiry(text string, now time.Time) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return &at, nil
	}
	life, err := parseDays(text)
	if err != nil || life <= 0 {
		return nil, fmt.Errorf("%q is not a time in the future; write 90d, 12h or 2027-03-01T09:30:00Z", text)
	}
	at := now.Add(life)
	return &at, nil
}

// parseDays parses a duration, or a number of days such as 90d.
func parseDays(text string) (time.Duration, error) {
	const day = 24 * time.Hour
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * day, err
	}
	return time.ParseDuration(text)
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
		none:   "keys",
		header: "ID\tNAME\tSCOPES\tNETWORKS\tCREATED\tEXPIRES\tLAST USED\tREVOKED",
		row: func(key client.Key) []any {
			return []any{
				key.Id, key.Name, strings.Join(key.Scopes, ","), strings.Join(key.Networks, ","), key.CreatedAt.Format(time.RFC3339),
				keyTime(key.ExpiresAt), keyTime(key.LastUsedAt), keyTime(key.RevokedAt),
			}
		},
	})
}

func keyTime(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.Format(time.RFC3339)
}

func keyRotate(to *connection, of *string) *cobra.Command {
	var overlap string
	command := &cobra.Command{
		Use:   "rotate ID",
		Short: "Replace a key, and print the new one this once",
		Long: `Create a key with the name, scopes, networks and lifetime of another, and print it this once. The old key still works during
--overlap. A key is rotated once. If you have lost the new key, rotate that one: manifold key list shows its id.`,
		Example: `  manifold key rotate 0190d3a4-1111-7def-8123-456789abcdef --overlap 7d`,
		Args:    cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			lasts, err := parseDays(overlap)
			if err != nil || lasts < 0 || lasts%time.Second != 0 {
				return fmt.Errorf("--overlap %q is not a duration in whole seconds; write 24h, 7d, or 0s to revoke the old key at once", overlap)
			}
			body := client.KeyRotation{Overlap: new(int64(lasts / time.Second))}
			response, err := ofTenant(ctx, c, *of,
				func() (*http.Response, error) { return c.RotateKey(ctx, c.args[0], body) },
				func(id string) (*http.Response, error) { return c.RotateTenantKey(ctx, id, c.args[0], body) })
			key, err := read[client.CreatedKey](response, err)
			if err != nil {
				return err
			}
			return c.out.printf("%s\n", key.Key)
		}),
	}
	command.Flags().StringVar(&overlap, "overlap", "24h", "how long the old key still works, at most 90d; 0s revokes it at once")
	return command
}

func keyLimit(to *connection, of *string) *cobra.Command {
	var limited limitsFlags
	none := false
	command := &cobra.Command{
		Use:     "limit ID",
		Short:   "Replace a key's limits",
		Long:    "Replace all of a key's limits, which are within those of its tenant. With --none, only those of the tenant apply.",
		Example: `  manifold key limit 0190d3a4-1111-7def-8123-456789abcdef --requests 50:100`,
		Args:    cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			body, err := limited.limits()
			if err != nil {
				return err
			}
			if none != (body == client.Limits{}) {
				return errors.New("give all limits that the key shall have, or --none to remove them")
			}
			return done(ofTenant(ctx, c, *of,
				func() (*http.Response, error) { return c.LimitKey(ctx, c.args[0], body) },
				func(id string) (*http.Response, error) { return c.LimitTenantKey(ctx, id, c.args[0], body) }))
		}),
	}
	limited.bind(command)
	command.Flags().BoolVar(&none, "none", false, "remove the key's own limits")
	return command
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
