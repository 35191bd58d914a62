package pg

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
)

// Quota limits a tenant's rows of a table. The condition where may be empty; it refers to the table as t.
type Quota struct {
	Items string // for people: "groups"
	Table string
	Where string
	Max   int
}

// Check returns domain.CodeQuotaExceeded if the tenant has more than allowed after an insert in this transaction.
// Concurrent inserts are not counted. Shared items have no quota.
func (q Quota) Check(ctx context.Context, tx pgx.Tx, tenant domain.TenantID) error {
	if tenant == domain.Everyone {
		return nil
	}
	count, err := q.Count(ctx, tx, tenant)
	if err != nil {
		return err
	}
	if count > q.Max {
		return domain.Errorf(domain.CodeQuotaExceeded, "", "the tenant has %d %s, the most it may have; remove one that is no longer needed", count-1, q.Items)
	}
	return nil
}

// Count returns how many the tenant has, as the transaction sees it.
func (q Quota) Count(ctx context.Context, tx pgx.Tx, tenant domain.TenantID) (count int, err error) {
	statement := "select count(*) from " + q.Table + " t where t.tenant_id = $1"
	if q.Where != "" {
		statement += " and " + q.Where
	}
	if err := tx.QueryRow(ctx, statement, tenant).Scan(&count); err != nil {
		return 0, fmt.Errorf("count the %s: %w", q.Items, err)
	}
	return count, nil
}
