package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
)

// quota limits a tenant's rows of a table. The condition where may be empty; it refers to the table as t.
type quota struct {
	things string // for people: "groups"
	table  string
	where  string
	most   int
}

var (
	keyQuota        = quota{"keys that are not revoked", "keys", "t.revoked_at is null", domain.MaxKeys}
	projectionQuota = quota{"projections", "projections", "", domain.MaxProjections}
	aggregateQuota  = quota{"aggregate definitions", "aggregates", "", domain.MaxAggregates}
	groupQuota      = quota{"groups", "subscriptions", "t.name not like '%.%'", domain.MaxGroups} // a service group's name has a dot
	webhookQuota    = quota{"webhooks", "webhooks", "", domain.MaxWebhooks}
	retentionQuota  = quota{"retention policies", "retention_policies", "", domain.MaxRetentionPolicies}
)

// check returns domain.CodeQuotaExceeded if the tenant has more than allowed after an insert in this transaction.
// Concurrent inserts are not counted. Shared things have no quota.
func (q quota) check(ctx context.Context, tx pgx.Tx, tenant domain.TenantID) error {
	if tenant == domain.Everyone {
		return nil
	}
	statement := "select count(*) from " + q.table + " t where t.tenant_id = $1"
	if q.where != "" {
		statement += " and " + q.where
	}
	var there int
	if err := tx.QueryRow(ctx, statement, tenant).Scan(&there); err != nil {
		return fmt.Errorf("count the %s: %w", q.things, err)
	}
	if there > q.most {
		return domain.Errorf(domain.CodeQuotaExceeded, "", "the tenant has %d %s, the most it may have; remove one that is no longer needed", there-1, q.things)
	}
	return nil
}
