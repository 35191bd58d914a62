package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/tenant"
)

func scanPlan(row pgx.CollectableRow) (plan domain.Plan, err error) {
	var limits, quotas []byte
	if err := row.Scan(&plan.Name, &limits, &quotas); err != nil {
		return plan, err
	}
	return plan, errors.Join(json.Unmarshal(limits, &plan.Limits), json.Unmarshal(quotas, &plan.Quotas))
}

// assigned is a row of tenant_limits.
type assigned struct {
	tenant domain.TenantID
	domain.TenantLimits
}

func scanAssigned(row pgx.CollectableRow) (a assigned, err error) {
	var limits, quotas []byte
	var plan *string
	if err := row.Scan((*[16]byte)(&a.tenant), &plan, &limits, &quotas); err != nil {
		return a, err
	}
	if plan != nil {
		a.Plan = *plan
	}
	return a, errors.Join(json.Unmarshal(limits, &a.Limits), json.Unmarshal(quotas, &a.Quotas))
}

// encode returns limits and quotas as they are stored.
func encode(limits domain.Limits, quotas domain.Quotas) (limitsText, quotasText []byte, err error) {
	if limitsText, err = json.Marshal(limits); err == nil {
		quotasText, err = json.Marshal(quotas)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("encode limits: %w", err)
	}
	return limitsText, quotasText, nil
}

// Plans returns the first limit plans after the one named after, by name.
func (s *Postgres) Plans(ctx context.Context, after string, limit int) ([]domain.Plan, error) {
	return pg.Select(ctx, s.db.System, "list the plans", scanPlan,
		"select p.name, p.limits, p.quotas from plans p where p.name > $1 order by p.name limit $2", after, limit)
}

// Plan returns a plan, or domain.CodeNotFound.
func (s *Postgres) Plan(ctx context.Context, name string) (domain.Plan, error) {
	plans, err := pg.Select(ctx, s.db.System, "read a plan", scanPlan, "select p.name, p.limits, p.quotas from plans p where p.name = $1", name)
	if err != nil || len(plans) == 1 {
		return first(plans), err
	}
	return domain.Plan{}, noPlan("", name)
}

func noPlan(where, name string) error {
	return domain.Errorf(domain.CodeNotFound, where, "there is no plan %q", name)
}

// first returns the first element, or the zero value.
func first[T any](list []T) (one T) {
	if len(list) > 0 {
		one = list[0]
	}
	return one
}

// PutPlan creates or replaces a plan, and reports whether it was created. Every process uses it within moments. Beyond
// domain.MaxPlans plans, the error is domain.CodeQuotaExceeded.
func (s *Postgres) PutPlan(ctx context.Context, plan domain.Plan) (created bool, err error) {
	limits, quotas, err := encode(plan.Limits, plan.Quotas)
	if err != nil {
		return false, err
	}
	err = s.change(ctx, "", func(tx pgx.Tx) error {
		replaced, err := pg.Exec(ctx, tx, "change a plan", "update plans p set limits = $2, quotas = $3, updated_at = now() where p.name = $1", plan.Name, limits, quotas)
		if err != nil || replaced > 0 {
			return err
		}
		// Concurrent requests wait for each other, so that each counts what the other has created. Without a plan that
		// both know, there is room for both.
		if _, err := pg.Exec(ctx, tx, "lock the plans", "select from plans p order by p.name for update"); err != nil {
			return err
		}
		created = true
		if _, err := tx.Exec(ctx, "insert into plans (name, limits, quotas) values ($1, $2, $3)", plan.Name, limits, quotas); err != nil {
			if pg.SQLState(err) == pg.UniqueViolation {
				return domain.Errorf(domain.CodeConflict, "path plan", "plan %q was created at the same time; try again", plan.Name)
			}
			return fmt.Errorf("create a plan: %w", err)
		}
		var count int
		if err := tx.QueryRow(ctx, "select count(*) from plans").Scan(&count); err != nil {
			return fmt.Errorf("count the plans: %w", err)
		}
		if count > domain.MaxPlans {
			return domain.Errorf(domain.CodeQuotaExceeded, "", "there are %d plans, the most there may be; delete one that is no longer needed", count-1)
		}
		return nil
	})
	return created && err == nil, err
}

// DeletePlan deletes a plan. It returns domain.CodeNotFound if there is none, and domain.CodeConflict if a tenant has
// it.
func (s *Postgres) DeletePlan(ctx context.Context, name string) error {
	return s.change(ctx, "", func(tx pgx.Tx) error {
		// The lock makes a concurrent assignment wait, and then fail.
		found, err := pg.Exec(ctx, tx, "lock a plan", "select from plans p where p.name = $1 for update", name)
		switch {
		case err != nil:
			return err
		case found == 0:
			return noPlan("", name)
		}
		var users int
		if err := tx.QueryRow(ctx, "select count(*) from tenant_limits l where l.plan = $1", name).Scan(&users); err != nil {
			return fmt.Errorf("count the tenants of a plan: %w", err)
		}
		if users > 0 {
			return domain.Errorf(domain.CodeConflict, "path plan", "plan %q is assigned to %d tenants; assign another to them first", name, users)
		}
		_, err = pg.Exec(ctx, tx, "delete a plan", "delete from plans p where p.name = $1", name)
		return err
	})
}

const readTenantLimits = "select l.tenant_id, l.plan, l.limits, l.quotas from tenant_limits l where l.tenant_id = $1"

// TenantLimits returns a tenant's plan and what differs from it.
func (s *Postgres) TenantLimits(ctx context.Context, tenant domain.TenantID) (domain.TenantLimits, error) {
	found, err := pg.Select(ctx, s.db.System, "read a tenant's limits", scanAssigned,
		readTenantLimits, tenant)
	return first(found).TenantLimits, err
}

// SetTenantLimits assigns a plan to a tenant, with what differs from it. It returns domain.CodeNotFound if there is no
// such tenant or plan. Every process uses it within moments.
func (s *Postgres) SetTenantLimits(ctx context.Context, of domain.TenantID, to domain.TenantLimits) error {
	limits, quotas, err := encode(to.Limits, to.Quotas)
	if err != nil {
		return err
	}
	return s.change(ctx, of.String(), func(tx pgx.Tx) error {
		// The lock keeps the row from being added after the tenant's rows were erased.
		there, err := pg.Exec(ctx, tx, "lock a tenant", `
			select from tenants t where t.tenant_id = $1 and t.state in ('active', 'suspended') for no key update`, of)
		switch {
		case err != nil:
			return err
		case there == 0:
			return tenant.NotFound(of)
		}
		if to.Plan != "" {
			found, err := pg.Exec(ctx, tx, "lock a plan", "select from plans p where p.name = $1 for no key update", to.Plan)
			switch {
			case err != nil:
				return err
			case found == 0:
				return noPlan("plan", to.Plan)
			}
		}
		_, err = pg.Exec(ctx, tx, "set a tenant's limits", `
			insert into tenant_limits (tenant_id, plan, limits, quotas) values ($1, $2, $3, $4)
			on conflict (tenant_id) do update set plan = excluded.plan, limits = excluded.limits, quotas = excluded.quotas, updated_at = excluded.updated_at`,
			of, pg.TextOrNull(to.Plan), limits, quotas)
		return err
	})
}

// change runs a transaction that changes plans or a tenant's limits, and notifies all processes. The payload is the
// tenant, or empty for plans.
func (s *Postgres) change(ctx context.Context, payload string, do func(pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, s.db.System, func(tx pgx.Tx) error {
		if err := do(tx); err != nil {
			return err
		}
		return pg.Notify(ctx, tx, pg.LimitsChannel, payload)
	})
	if err != nil {
		return pg.Unavailable(err)
	}
	s.db.LimitsChanged.Notify(struct{}{})
	return nil
}

// all returns all plans, and the limits of all tenants that have their own or a plan.
func (s *Postgres) all(ctx context.Context) (plans []domain.Plan, tenants []assigned, err error) {
	if plans, err = s.Plans(ctx, "", domain.MaxPlans); err != nil {
		return nil, nil, err
	}
	tenants, err = pg.Select(ctx, s.db.System, "list the limits of tenants", scanAssigned, "select l.tenant_id, l.plan, l.limits, l.quotas from tenant_limits l")
	return plans, tenants, err
}

// ListenLimits calls changed when plans or limits of tenants have changed, or may have: in this process before the
// changing method returns, in others as soon as PostgreSQL delivers the notice. It blocks until ctx ends, and then
// returns nil.
func (s *Postgres) ListenLimits(ctx context.Context, changed func()) error {
	defer s.db.LimitsChanged.Add(func(struct{}) { changed() })()
	s.db.ListenOn(ctx, pg.LimitsChannel, changed, func(string) { changed() })
	return nil
}
