package webhook

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// WebhookFailing returns what the log of attempts says about a webhook's URL if the newest attempt to reach it has
// failed. It returns nil if that attempt succeeded or there is none.
func (s *Postgres) WebhookFailing(ctx context.Context, tenant domain.TenantID, name, url string) (failing *Failing, err error) {
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		// Attempts of the same moment have no order, so the last success delimits the consecutive failures. This is one
		// statement, because a success may be stored at any time.
		var found Failing
		err := tx.QueryRow(ctx, `
			select count(*) over (), min(a.at) over (), a.at, a.outcome, a.status, a.error from webhook_attempts as a
			where a.tenant_id = $1::uuid and a.name = $2 and a.url = $3 and a.attempt_id > coalesce((
				select o.attempt_id from webhook_attempts as o
				where o.tenant_id = $1::uuid and o.name = $2 and o.url = $3 and o.outcome = $4 order by o.attempt_id desc limit 1), $5)
			order by a.attempt_id desc limit 1`,
			tenant, name, url, string(OutcomeOK), AttemptID{}).Scan(&found.Attempts, &found.Since, &found.LastAt, &found.Outcome, &found.Status, &found.Error)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case err != nil:
			return fmt.Errorf("read the attempts that have failed: %w", err)
		}
		failing = &found
		return nil
	})
	return failing, err
}
