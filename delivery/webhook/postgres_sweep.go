package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// webhookSlice is roughly how many rows of webhooks one statement removes. It is small enough that a statement takes
// only a moment.
const webhookSlice = 2000

// slicedTables are the tables of webhooks that may have many rows of a name, each with an indexed column that orders
// these rows. A slice is an interval of that column: a planner that expects few rows would scan a list of them
// repeatedly.
var slicedTables = map[string]string{"webhook_attempts": "attempt_id", "webhook_claims": "recorded_at"}

// slice returns the SQL for a name's rows of one of slicedTables, as t; with bound, only those below $3.
func slice(table string, bound bool) string {
	rows := "from " + table + " as t where t.tenant_id = $1 and t.name = $2"
	if bound {
		rows += " and t." + slicedTables[table] + " < $3"
	}
	return rows
}

// sliceEnd returns the SQL for the last row of a full slice. It finds no row if there are fewer.
func sliceEnd(table string, bound bool) string {
	return fmt.Sprintf("select t.%[1]s %[2]s order by t.%[1]s offset %[3]d limit 1", slicedTables[table], slice(table, bound), webhookSlice-1)
}

// removeSlice removes the lowest rows of a name from one of slicedTables: those below a value, or any if below is nil.
// It reports whether there may be more of them.
func removeSlice(ctx context.Context, tx pgx.Tx, table string, tenant domain.TenantID, name string, below any) (more bool, err error) {
	params := []any{tenant, name}
	if below != nil {
		params = append(params, below)
	}
	remove := "delete " + slice(table, below != nil)
	var last any
	err = tx.QueryRow(ctx, sliceEnd(table, below != nil), params...).Scan(&last)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return false, fmt.Errorf("look for a slice of %s: %w", table, err)
	default:
		params = append(params, last)
		remove += fmt.Sprintf(" and t.%s <= $%d", slicedTables[table], len(params))
		more = true
	}
	if _, err := tx.Exec(ctx, remove, params...); err != nil {
		return false, fmt.Errorf("remove a slice of %s: %w", table, err)
	}
	return more, nil
}

// emptySliced removes all rows of a name from one of slicedTables, in the same way as emptyGroup.
func (s *Postgres) emptySliced(ctx context.Context, table string, tenant domain.TenantID, name string, may func(pgx.Tx) error) error {
	for more := true; more; {
		err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) (err error) {
			if err := may(tx); err != nil {
				return err
			}
			more, err = removeSlice(ctx, tx, table, tenant, name, nil)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// SweepWebhook removes some outdated rows of a webhook: attempts beyond the newest MaxAttempts or older
// than AttemptsLife, and claims that events can no longer meet. more reports that there may be more such
// rows. A call takes only a moment. A webhook that no longer exists has nothing left to remove.
func (s *Postgres) SweepWebhook(ctx context.Context, tenant domain.TenantID, name string) (more bool, err error) {
	webhook, err := s.Webhook(ctx, tenant, name)
	if domain.IsCode(err, domain.CodeNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		if more, err = sweepAttempts(ctx, tx, tenant, name); err != nil {
			return err
		}
		for _, group := range []string{webhookGroup(name), replayGroup(name)} {
			some, err := sweepClaims(ctx, tx, tenant, group, webhook.DedupeWindow+ClaimsKept)
			if err != nil {
				return err
			}
			more = more || some
		}
		return nil
	})
	return more, err
}

// sweepClaimsOf removes some claims of a group that is not a webhook's.
func (s *Postgres) sweepClaimsOf(ctx context.Context, tenant domain.TenantID, group string, keep time.Duration) (more bool, err error) {
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		more, err = sweepClaims(ctx, tx, tenant, group, keep)
		return err
	})
	return more, err
}

func sweepAttempts(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name string) (more bool, err error) {
	var now time.Time
	if err := tx.QueryRow(ctx, "select now()").Scan(&now); err != nil {
		return false, fmt.Errorf("ask for the time: %w", err)
	}
	below := FirstAttemptID(now.Add(-AttemptsLife))
	var kept AttemptID // the oldest attempt to keep
	err = tx.QueryRow(ctx, `
		select a.attempt_id from webhook_attempts as a where a.tenant_id = $1 and a.name = $2
		order by a.attempt_id desc offset $3 limit 1`, tenant, name, MaxAttempts-1).Scan(&kept)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return false, fmt.Errorf("look for the oldest of a webhook's attempts that stay: %w", err)
	case string(kept[:]) > string(below[:]):
		below = kept
	}
	return removeSlice(ctx, tx, "webhook_attempts", tenant, name, below)
}

const newestClaim = `select c.recorded_at from webhook_claims as c where c.tenant_id = $1 and c.name = $2 order by c.recorded_at desc limit 1`

// sweepClaims keeps claims relative to the newest one, not to the clock, so that a webhook that was stopped for days
// makes the same decisions as one that was not.
func sweepClaims(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, group string, keep time.Duration) (more bool, err error) {
	var newest time.Time
	err = tx.QueryRow(ctx, newestClaim, tenant, group).Scan(&newest)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for a webhook's newest claim: %w", err)
	}
	return removeSlice(ctx, tx, "webhook_claims", tenant, group, newest.Add(-keep))
}
