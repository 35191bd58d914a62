package cli

import (
	"context"
	"errors"
	"fmt"
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
		Long: `Create, list and revoke keys: of the tenant that --tenant names, with the operator's key; or, without it, of one's own
tenant, with a key that has the scope tenant:admin.`,
		Args: cobra.NoArgs,
	}
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	command.PersistentPreRun = func(command *cobra.Command, _ []string) {
		// If the environment has both keys, a tenant's name means that the caller acts as operator.
		if tenant != "" {
			to.asOperator(command)
		}
	}
	command.PersistentFlags().StringVar(&tenant, "tenant", "", "name or id of the tenant")
	command.AddCommand(keyCreate(to, &tenant), keyList(to, &tenant), keyRevoke(to, &tenant))
	return command
}

// keyScopes are the scopes of tenants' keys, for messages.
const keyScopes = "events:append, events:read, events:consume, documents:read, projections:write, subscriptions:write and tenant:admin"

func keyCreate(to *connection, of *string) *cobra.Command {
	var scopes []string
	command := &cobra.Command{
		Use:   "create NAME --scope SCOPE[,SCOPE...]",
		Short: "Create a key, and print it: this once",
		Long: `Create a key, and print it: this once. Its scopes are of ` + keyScopes + `.

Those of events and subscriptions can be for some categories only: events:append:heartbeat.* is for heartbeat.web, but not for
heartbeat.web.eu; * stands for one segment between dots, ** for any number, none as well. One that begins with ! takes
categories away from what stands behind it: the first that is about a category decides, and what none is about is denied.
Quotes keep the shell from reading * and ! itself.`,
		Example: `  manifold key create backend --scope events:append,events:read
  manifold key create probe --scope 'events:append:heartbeat.*'
  manifold key create analytics --scope '!events:read:billing.**' --scope 'events:read:**'`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if len(scopes) == 0 {
				return errors.New("no scope: give --scope with one or several of " + keyScopes)
			}
			service, err := to.open()
			if err != nil {
				return err
			}
			ctx, body := command.Context(), client.NewKey{Name: args[0], Scopes: scopes}
			var key client.CreatedKey
			if *of == "" {
				r, callErr := service.CreateKeyWithResponse(ctx, body)
				if callErr != nil {
					return callErr
				}
				key, err = answered(r.JSON201, r.HTTPResponse, r.Body)
			} else {
				tenant, findErr := findTenant(ctx, service, *of)
				if findErr != nil {
					return findErr
				}
				r, callErr := service.CreateTenantKeyWithResponse(ctx, tenant.Id, body)
				if callErr != nil {
					return callErr
				}
				key, err = answered(r.JSON201, r.HTTPResponse, r.Body)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(command.OutOrStdout(), key.Key)
			return err
		},
	}
	command.Flags().StringSliceVar(&scopes, "scope", nil, "what the key may do, in order; may be repeated")
	return command
}

func keyList(to *connection, of *string) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the keys, without their secrets",
		Args:  cobra.NoArgs,
		RunE: to.withService(func(command *cobra.Command, _ []string, service *client.ClientWithResponses) error {
			keys, err := keysOf(command.Context(), service, *of)
			if err != nil {
				return err
			}
			return writeList(command.OutOrStdout(), false, "ID\tNAME\tSCOPES\tCREATED\tREVOKED", keys, func(key client.Key) []any {
				revoked := ""
				if key.RevokedAt != nil {
					revoked = key.RevokedAt.Format(time.RFC3339)
				}
				return []any{key.Id, key.Name, strings.Join(key.Scopes, ","), key.CreatedAt.Format(time.RFC3339), revoked}
			})
		}),
	}
}

// keysOf yields the keys of the tenant with that name or id. If nameOrID is empty, it yields the keys of the caller's
// tenant.
func keysOf(ctx context.Context, service *client.ClientWithResponses, nameOrID string) (iter.Seq2[client.Key, error], error) {
	size := pageSize
	if nameOrID == "" {
		return pages(func(token *string) ([]client.Key, *http.Response, error) {
			r, err := service.ListKeysWithResponse(ctx, &client.ListKeysParams{PageSize: &size, PageToken: token})
			if err != nil {
				return nil, nil, err
			}
			page, err := answered(r.JSON200, r.HTTPResponse, r.Body)
			return page.Keys, r.HTTPResponse, err
		}), nil
	}
	tenant, err := findTenant(ctx, service, nameOrID)
	if err != nil {
		return nil, err
	}
	return pages(func(token *string) ([]client.Key, *http.Response, error) {
		r, err := service.ListTenantKeysWithResponse(ctx, tenant.Id, &client.ListTenantKeysParams{PageSize: &size, PageToken: token})
		if err != nil {
			return nil, nil, err
		}
		page, err := answered(r.JSON200, r.HTTPResponse, r.Body)
		return page.Keys, r.HTTPResponse, err
	}), nil
}

func keyRevoke(to *connection, of *string) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke a key",
		Args:  cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			ctx := command.Context()
			if *of == "" {
				r, err := service.RevokeKeyWithResponse(ctx, args[0])
				if err != nil {
					return err
				}
				if r.StatusCode() != http.StatusNoContent {
					return refusal(r.Status(), r.Body)
				}
				return nil
			}
			tenant, err := findTenant(ctx, service, *of)
			if err != nil {
				return err
			}
			r, err := service.RevokeTenantKeyWithResponse(ctx, tenant.Id, args[0])
			if err != nil {
				return err
			}
			if r.StatusCode() != http.StatusNoContent {
				return refusal(r.Status(), r.Body)
			}
			return nil
		}),
	}
}
