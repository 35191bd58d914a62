package tenant

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

const tenantColumns = "t.tenant_id, t.name, t.state, t.created_at, t.deleted_at, coalesce(t.receipt, ''), t.weight, t.ceiling"

// scanTenant reads a row of tenantColumns.
func scanTenant(row pgx.CollectableRow) (domain.Tenant, error) {
	var tenant domain.Tenant
	err := row.Scan(&tenant.ID, &tenant.Name, &tenant.State, (*pg.Moment)(&tenant.CreatedAt), (*pg.Moment)(&tenant.DeletedAt), &tenant.Receipt, &tenant.Weight, &tenant.Ceiling)
	return tenant, err
}

// CreateTenant creates a tenant. State is active if empty, and CreatedAt is now if zero. It returns
// domain.CodeAlreadyExists if another tenant that is not deleted has the name, or if the id was ever used.
func (s *Tenants) CreateTenant(ctx context.Context, tenant domain.Tenant) error {
	switch {
	case tenant.ID == domain.Everyone:
		return domain.Errorf(domain.CodeInvalidRequest, "id", "the nil UUID is no tenant's id")
	case tenant.ID.IsAuditLog():
		return domain.Errorf(domain.CodeInvalidRequest, "id", "%s is reserved: UUIDs of version 10 name audit logs; use another version", tenant.ID)
	}
	if tenant.State == "" {
		tenant.State = domain.TenantActive
	}
	_, err := s.db.System.Exec(ctx, `
		insert into tenants (tenant_id, name, state, created_at)
		values ($1, $2, $3, coalesce($4, now()))`,
		tenant.ID, tenant.Name, tenant.State, pg.TimeOrNull(tenant.CreatedAt))
	switch {
	case pg.SQLState(err) == pg.UniqueViolation:
		return domain.Errorf(domain.CodeAlreadyExists, "name", "a tenant named %q, or with this id, already exists", tenant.Name)
	case err != nil:
		return pg.Unavailable(fmt.Errorf("create a tenant: %w", err))
	}
	return nil
}

// Tenant returns a tenant, even a deleted one, or domain.CodeNotFound if this id was never used.
func (s *Tenants) Tenant(ctx context.Context, id domain.TenantID) (domain.Tenant, error) {
	tenant, err := pg.LookUp(ctx, s.db.Foreground, id, scanTenant, "select "+tenantColumns+" from tenants t where t.tenant_id = $1", id)
	if errors.Is(err, pgx.ErrNoRows) {
		return domain.Tenant{}, NotFound(id)
	}
	if err != nil {
		return domain.Tenant{}, pg.Unavailable(fmt.Errorf("read a tenant: %w", err))
	}
	return tenant, nil
}

// Ended reports whether a tenant is being deleted, is deleted or never existed.
func (s *Tenants) Ended(ctx context.Context, id domain.TenantID) (bool, error) {
	tenant, err := s.Tenant(ctx, id)
	if domain.IsCode(err, domain.CodeNotFound) {
		return true, nil
	}
	return tenant.State == domain.TenantDeleting || tenant.State == domain.TenantDeleted, err
}

// Tenants returns at most limit tenants with ids above after, including deleted ones. They are ordered by id, which is
// roughly the order of creation.
func (s *Tenants) Tenants(ctx context.Context, after domain.TenantID, limit int) ([]domain.Tenant, error) {
	rows, _ := s.db.System.Query(ctx,
		"select "+tenantColumns+" from tenants t where t.tenant_id > $1 order by t.tenant_id limit $2", after, limit)
	tenants, err := pgx.CollectRows(rows, scanTenant)
	if err != nil {
		return nil, pg.Unavailable(fmt.Errorf("list the tenants: %w", err))
	}
	return tenants, nil
}

// TenantsIn returns all tenants in a state. It is meant for states with few tenants.
func (s *Tenants) TenantsIn(ctx context.Context, state domain.TenantState) ([]domain.Tenant, error) {
	rows, _ := s.db.System.Query(ctx,
		"select "+tenantColumns+" from tenants t where t.state = $1 order by t.tenant_id", state)
	tenants, err := pgx.CollectRows(rows, scanTenant)
	if err != nil {
		return nil, pg.Unavailable(fmt.Errorf("list the tenants that are %s: %w", state, err))
	}
	return tenants, nil
}

// SetTenantState makes a tenant active, suspended or deleting. A tenant cannot leave the state deleting: the error is
// domain.CodeConflict. Setting the current state does nothing.
func (s *Tenants) SetTenantState(ctx context.Context, id domain.TenantID, state domain.TenantState) error {
	switch state {
	case domain.TenantActive, domain.TenantSuspended, domain.TenantDeleting:
	default:
		return domain.Errorf(domain.CodeInvalidRequest, "state", "invalid state %q; use active, suspended or deleting", state)
	}
	err := pgx.BeginFunc(ctx, s.db.System, func(tx pgx.Tx) error {
		var before domain.TenantState
		err := tx.QueryRow(ctx, "select t.state from tenants t where t.tenant_id = $1 for update", id).Scan(&before)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return NotFound(id)
		case err != nil:
			return fmt.Errorf("lock a tenant: %w", err)
		case before == state:
			return nil
		case before == domain.TenantDeleting || before == domain.TenantDeleted:
			return domain.Errorf(domain.CodeConflict, "state", "tenant %s is %s, and can no longer be %s", id, before, state)
		}
		if _, err := tx.Exec(ctx, "update tenants t set state = $2 where t.tenant_id = $1", id, state); err != nil {
			return fmt.Errorf("set a tenant's state: %w", err)
		}
		if err := pg.Notify(ctx, tx, pg.WebhooksChannel, id.String()); err != nil {
			return err
		}
		return pg.Notify(ctx, tx, pg.KeysChannel, id.String())
	})
	if err != nil {
		return pg.Unavailable(err)
	}
	s.db.KeysChanged.Notify(id)
	s.db.WebhooksChanged.Notify(id)
	return nil
}

// SetTenantShare changes the tenant's share of the work on projections, and notifies every process that works on them.
// A nil argument changes nothing. It returns domain.CodeInvalidRequest if a value is out of range, and
// domain.CodeNotFound if the tenant does not exist or is deleted.
func (s *Tenants) SetTenantShare(ctx context.Context, id domain.TenantID, weight, ceiling *int) error {
	if weight != nil && (*weight < 1 || *weight > domain.MaxWeight) {
		return domain.Errorf(domain.CodeInvalidRequest, "weight", "it is %d; it must be 1 to %d", *weight, domain.MaxWeight)
	}
	if ceiling != nil && (*ceiling < 0 || *ceiling > domain.MaxCeiling) {
		return domain.Errorf(domain.CodeInvalidRequest, "ceiling", "it is %d; it must be 0 (as configured) to %d", *ceiling, domain.MaxCeiling)
	}
	err := pgx.BeginFunc(ctx, s.db.System, func(tx pgx.Tx) error {
		set, err := tx.Exec(ctx, `
			update tenants t set weight = coalesce($2, t.weight), ceiling = coalesce($3, t.ceiling)
			where t.tenant_id = $1 and t.state <> 'deleted'`, id, weight, ceiling)
		switch {
		case err != nil:
			return fmt.Errorf("set a tenant's share: %w", err)
		case set.RowsAffected() == 0:
			return NotFound(id)
		}
		return pg.Notify(ctx, tx, pg.ProjectionsChannel, "")
	})
	if err != nil {
		return pg.Unavailable(err)
	}
	s.db.ProjectionsChanged.Notify(struct{}{})
	return nil
}

// Shares returns the shares of the tenants whose weight is not 1 or whose ceiling is not the configured one.
func (s *Tenants) Shares(ctx context.Context) (map[domain.TenantID]domain.Share, error) {
	rows, _ := s.db.System.Query(ctx, "select t.tenant_id, t.weight, t.ceiling from tenants t where (t.weight <> 1 or t.ceiling <> 0) and t.state <> 'deleted'")
	shares := make(map[domain.TenantID]domain.Share)
	var id domain.TenantID
	var share domain.Share
	_, err := pgx.ForEachRow(rows, []any{(*[16]byte)(&id), &share.Weight, &share.Ceiling}, func() error {
		shares[id] = share
		return nil
	})
	if err != nil {
		return nil, pg.Unavailable(fmt.Errorf("list the tenants' shares: %w", err))
	}
	return shares, nil
}

// NotFound returns the error for a tenant that does not exist, domain.CodeNotFound.
func NotFound(id domain.TenantID) error {
	return domain.Errorf(domain.CodeNotFound, "", "there is no tenant %s", id)
}
