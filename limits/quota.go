package limits

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Quota limits what a tenant may have of one kind. Its owner checks it in the transaction that creates one.
type Quota struct {
	name domain.Quota
	rows pg.Quota
}

// The quotas whose items are rows.
var (
	Projections = Quota{domain.QuotaProjections, pg.Quota{Items: "projections", Table: "projections"}}
	Groups      = Quota{domain.QuotaGroups, pg.Quota{Items: "groups", Table: "subscriptions", Where: "t.name not like '%.%'"}} // a service group's name has a dot
	Webhooks    = Quota{domain.QuotaWebhooks, pg.Quota{Items: "webhooks", Table: "webhooks"}}
	Keys        = Quota{domain.QuotaKeys, pg.Quota{
		Items: "keys that are neither revoked nor expired", Table: "keys",
		Where: "t.revoked_at is null and coalesce(t.expires_at, 'infinity') > now() and t.rotated_to is null", // its replacement counts
	}}
)

// maxAuditLog is how many groups, and how many webhooks, an audit log may have. Plans do not concern it.
const maxAuditLog = 10

// Check returns domain.CodeQuotaExceeded if the tenant has more than most, or than its plan allows, after an insert in
// this transaction. From then on, other transactions that create one for the tenant wait for this one.
func (q Quota) Check(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, most int) error {
	if tenant == domain.Everyone {
		return nil
	}
	if _, err := pg.Exec(ctx, tx, "lock a quota", `
		insert into quota_checks as c (tenant_id, quota) values ($1, $2)
		on conflict (tenant_id, quota) do update set checked_at = excluded.checked_at`, tenant, q.name); err != nil {
		return err
	}
	if tenant.IsAuditLog() {
		q.rows.Max = min(most, maxAuditLog)
		return q.rows.Check(ctx, tx, tenant)
	}
	limit, err := limitIn(ctx, tx, tenant, q.name)
	if err != nil {
		return err
	}
	if limit == nil || *limit >= int64(most) {
		q.rows.Max = most
		return q.rows.Check(ctx, tx, tenant)
	}
	count, err := q.rows.Count(ctx, tx, tenant)
	if err != nil || int64(count) <= *limit {
		return err
	}
	used := int64(count) - 1
	e := domain.Errorf(domain.CodeQuotaExceeded, "", "the tenant has %d %s, and may have %d; remove one that is no longer needed, or ask the operator for another plan", used, q.rows.Items, *limit)
	e.Quota = &domain.QuotaUse{Quota: q.name, Used: used, Limit: *limit}
	return e
}

// limitIn returns a quota of a tenant's plan, or what replaces it, as the transaction sees it; nil: there is none.
func limitIn(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name domain.Quota) (*int64, error) {
	own, _, err := pg.SelectOne(ctx, tx, "read a tenant's limits", scanAssigned,
		readTenantLimits, tenant)
	if err != nil {
		return nil, err
	}
	if own.Plan == "" {
		own.Plan = domain.DefaultPlan
	}
	plan, _, err := pg.SelectOne(ctx, tx, "read a plan", scanPlan, "select p.name, p.limits, p.quotas from plans p where p.name = $1", own.Plan)
	if err != nil {
		return nil, err
	}
	_, quotas := own.Within(plan)
	return quotas.Of(name), nil
}

// Use returns how much a tenant has of what quotas can limit, whether or not they do. Stored events are missing if they
// are not counted, because the tenant has no quota for them.
func (s *Postgres) Use(ctx context.Context, tenant domain.TenantID) (map[domain.Quota]int64, error) {
	use := make(map[domain.Quota]int64)
	err := pgx.BeginFunc(ctx, s.db.System, func(tx pgx.Tx) error {
		count, err := Keys.rows.Count(ctx, tx, tenant)
		if err != nil {
			return err
		}
		use[domain.QuotaKeys] = int64(count)
		var read pgx.Batch
		q := question{ledgerName: ledgerName{tenant: tenant}}
		q.queueStored(&read)
		if err := tx.SendBatch(ctx, &read).Close(); err != nil {
			return fmt.Errorf("read what is stored: %w", err)
		}
		if q.stored.complete {
			use[domain.QuotaEvents], use[domain.QuotaBytes] = q.stored.total().events, q.stored.total().bytes
		}
		return nil
	})
	if err != nil {
		return nil, pg.Unavailable(err)
	}
	return use, pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		for _, q := range []Quota{Projections, Groups, Webhooks} {
			count, err := q.rows.Count(ctx, tx, tenant)
			if err != nil {
				return err
			}
			use[q.name] = int64(count)
		}
		return nil
	})
}
