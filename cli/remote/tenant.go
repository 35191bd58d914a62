package remote

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
		tenantChange(to, "suspend", "suspended", "Refuse all of a tenant's requests; its data is kept"),
		tenantChange(to, "resume", "active", "Resume a suspended tenant"),
		tenantDelete(to), tenantReceipt(to))
	return command
}

func tenantCreate(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "create NAME",
		Short: "Create a tenant, and print its id",
		Args:  cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			tenant, err := read[client.Tenant](c.CreateTenant(ctx, client.NewTenant{Name: c.args[0]}))
			if err != nil {
				return err
			}
			return c.out.printf("%s\n", tenant.Id)
		}),
	}
}

func tenantList(to *connection) *cobra.Command {
	return list(to, &cobra.Command{
		Use:   "list",
		Short: "List the tenants",
		Args:  cobra.NoArgs,
	}, tenants, table[client.Tenant]{
		none:   "tenants",
		header: "ID\tNAME\tSTATE\tCREATED",
		row: func(tenant client.Tenant) []any {
			return []any{tenant.Id, tenant.Name, tenant.State, tenant.CreatedAt.Format(time.RFC3339)}
		},
	})
}

func tenantReceipt(to *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "receipt ID",
		Short: "Print the signed receipt of a deleted tenant",
		Args:  cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			tenant, err := read[client.Tenant](c.GetTenant(ctx, c.args[0]))
			switch {
			case err != nil:
				return err
			case tenant.State != "deleted":
				return fmt.Errorf("tenant %s is %s; a receipt follows when it is deleted", tenant.Name, tenant.State)
			case tenant.Receipt == "":
				return fmt.Errorf("tenant %s has no receipt: an earlier release has deleted it", tenant.Id)
			}
			return c.out.printf("%s", tenant.Receipt)
		}),
	}
}

// tenants yields all tenants.
func tenants(ctx context.Context, c *call) iter.Seq2[client.Tenant, error] {
	return pages(func(token *string) (*http.Response, error) {
		return c.ListTenants(ctx, &client.ListTenantsParams{PageSize: new(pageSize), PageToken: token})
	}, func(page client.TenantList) []client.Tenant { return page.Tenants })
}

// findTenant finds a tenant by id or name. A deleted tenant no longer has a name.
func findTenant(ctx context.Context, c *call, nameOrID string) (client.Tenant, error) {
	for tenant, err := range tenants(ctx, c) {
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
		RunE: to.run(func(ctx context.Context, c *call) error {
			tenant, err := findTenant(ctx, c, c.args[0])
			if err != nil {
				return err
			}
			tenant, err = read[client.Tenant](c.ChangeTenant(ctx, tenant.Id, client.TenantChange{State: state}))
			if err != nil {
				return err
			}
			return c.out.printf("tenant %s is %s\n", tenant.Name, tenant.State)
		}),
	}
}

func tenantDelete(to *connection) *cobra.Command {
	var confirm string
	command := &cobra.Command{
		Use:   "delete NAME|ID --confirm NAME",
		Short: "Delete a tenant with all its data, for good",
		Args:  cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			if confirm == "" {
				return errors.New("this removes the tenant's events and documents for good; repeat its name in --confirm to confirm")
			}
			tenant, err := findTenant(ctx, c, c.args[0])
			if err != nil {
				return err
			}
			if err := done(c.DeleteTenant(ctx, tenant.Id, &client.DeleteTenantParams{Confirm: confirm})); err != nil {
				return err
			}
			return c.out.printf("tenant %s is being deleted\n", tenant.Name)
		}),
	}
	command.Flags().StringVar(&confirm, "confirm", "", "the tenant's name, repeated")
	return command
}
