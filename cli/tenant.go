package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func tenantCommand() *cobra.Command {
	to := &connection{}
	command := &cobra.Command{
		Use:   "tenant",
		Short: "Create, list, suspend and delete tenants, with the operator's key",
		Args:  cobra.NoArgs,
	}
	to.bind(command, operatorKey, "MANIFOLD_KEY")
	command.AddCommand(tenantCreate(to), tenantList(to),
		tenantChange(to, "suspend", "suspended", "Refuse every call of a tenant; nothing of it is removed"),
		tenantChange(to, "resume", "active", "Let a suspended tenant work again"),
		tenantDelete(to))
	return command
}

func tenantCreate(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "create NAME",
		Short: "Create a tenant, and print its id",
		Args:  cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			r, err := service.CreateTenantWithResponse(command.Context(), client.NewTenant{Name: args[0]})
			if err != nil {
				return err
			}
			tenant, err := answered(r.JSON201, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(command.OutOrStdout(), tenant.Id)
			return err
		}),
	}
}

func tenantList(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the tenants",
		Args:  cobra.NoArgs,
		RunE: to.withService(func(command *cobra.Command, _ []string, service *client.ClientWithResponses) error {
			return writeList(command.OutOrStdout(), false, "ID\tNAME\tSTATE\tCREATED", tenants(command.Context(), service), func(tenant client.Tenant) []any {
				return []any{tenant.Id, tenant.Name, tenant.State, tenant.CreatedAt.Format(time.RFC3339)}
			})
		}),
	}
}

// tenants yields all tenants. It stops at the first error.
func tenants(ctx context.Context, service *client.ClientWithResponses) iter.Seq2[client.Tenant, error] {
	size := pageSize
	return pages(func(token *string) ([]client.Tenant, *http.Response, error) {
		r, err := service.ListTenantsWithResponse(ctx, &client.ListTenantsParams{PageSize: &size, PageToken: token})
		if err != nil {
			return nil, nil, err
		}
		page, err := answered(r.JSON200, r.HTTPResponse, r.Body)
		return page.Tenants, r.HTTPResponse, err
	})
}

// findTenant finds a tenant by id or name. A deleted tenant has no name any more.
func findTenant(ctx context.Context, service *client.ClientWithResponses, nameOrID string) (client.Tenant, error) {
	for tenant, err := range tenants(ctx, service) {
		if err != nil {
			return client.Tenant{}, err
		}
		if tenant.Id == nameOrID || tenant.Name == nameOrID && tenant.State != "deleted" {
			return tenant, nil
		}
	}
	return client.Tenant{}, fmt.Errorf("there is no tenant %q; see manifold tenant list", nameOrID)
}

func tenantChange(to *connection, name, state, short string) *cobra.Command {
	return &cobra.Command{
		Use:   name + " NAME|ID",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: to.withService(func(command *cobra.Command, args []string, service *client.ClientWithResponses) error {
			tenant, err := findTenant(command.Context(), service, args[0])
			if err != nil {
				return err
			}
			r, err := service.ChangeTenantWithResponse(command.Context(), tenant.Id, client.TenantChange{State: state})
			if err != nil {
				return err
			}
			tenant, err = answered(r.JSON200, r.HTTPResponse, r.Body)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "tenant %s is %s\n", tenant.Name, tenant.State)
			return err
		}),
	}
}

func tenantDelete(to *connection) *cobra.Command {
	var confirm string
	command := &cobra.Command{
		Use:   "delete NAME|ID --confirm NAME",
		Short: "Delete a tenant and everything of it, for good",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if confirm == "" {
				return errors.New("this removes the tenant's events and documents for good; repeat its name in --confirm if that is meant")
			}
			service, err := to.open()
			if err != nil {
				return err
			}
			tenant, err := findTenant(command.Context(), service, args[0])
			if err != nil {
				return err
			}
			r, err := service.DeleteTenantWithResponse(command.Context(), tenant.Id, &client.DeleteTenantParams{Confirm: confirm})
			if err != nil {
				return err
			}
			if r.StatusCode() != http.StatusAccepted {
				return refusal(r.Status(), r.Body)
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "tenant %s is being deleted\n", tenant.Name)
			return err
		},
	}
	command.Flags().StringVar(&confirm, "confirm", "", "the tenant's name, once more")
	return command
}
