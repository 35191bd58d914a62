package webhook

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// AddWebhookAttempts adds to a webhook's log of attempts, in one statement. It ignores attempts of a webhook that no
// longer exists.
func (s *Postgres) AddWebhookAttempts(ctx context.Context, tenant domain.TenantID, name string, attempts []Attempt) error {
	if len(attempts) == 0 {
		return nil
	}
	n := len(attempts)
	ids, events := make([]AttemptID, n), make([]domain.EventID, n)
	types, urls, outcomes, errs, excerpts := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	positions, numbers, statuses, took := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	replays := make([]bool, n)
	at, next := make([]time.Time, n), make([]*time.Time, n)
	for i := range attempts {
		a := &attempts[i]
		ids[i], events[i], types[i], positions[i], numbers[i], replays[i] = a.ID, a.EventID, a.Type, a.Position, int64(a.Attempt), a.Replay
		outcomes[i], statuses[i], took[i], at[i], next[i] = string(a.Outcome), int64(a.Status), a.Took.Microseconds(), a.At, pg.TimeOrNull(a.NextAt)
		urls[i], errs[i], excerpts[i] = pg.CleanText(a.URL), pg.CleanText(a.Error), pg.CleanText(a.Excerpt)
	}
	err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		// The webhook must not be removed meanwhile, so that the next webhook of its name inherits none of these rows.
		_, err := tx.Exec(ctx, `
			insert into webhook_attempts (tenant_id, name, attempt_id, event_id, event_type, position, attempt, replay, url, outcome, status, took, error, excerpt, at, next_at)
			select w.tenant_id, w.name, a.*
			from (select w.tenant_id, w.name from webhooks as w where w.tenant_id = $1 and w.name = $2 for key share) as w
			cross join unnest($3::uuid[], $4::uuid[], $5::text[], $6::bigint[], $7::bigint[], $8::boolean[], $9::text[], $10::text[], $11::bigint[], $12::bigint[],
				$13::text[], $14::text[], $15::timestamptz[], $16::timestamptz[]) as a
			on conflict (tenant_id, name, attempt_id) do nothing`, // the same call once more
			tenant, name, ids, events, types, positions, numbers, replays, urls, outcomes, statuses, took, errs, excerpts, at, next)
		return err
	})
	if err != nil {
		return fmt.Errorf("record attempts of a webhook: %w", err)
	}
	return nil
}

// WebhookAttempts returns a webhook's attempts that match a query, newest first, or domain.CodeNotFound if there is no
// such webhook.
func (s *Postgres) WebhookAttempts(ctx context.Context, tenant domain.TenantID, name string, q AttemptQuery) (attempts []Attempt, err error) {
	params := []any{tenant, name}
	where := ""
	with := func(condition string, param any) {
		params = append(params, param)
		where += fmt.Sprintf(condition, len(params))
	}
	if !q.Before.IsZero() {
		with(" and a.attempt_id < $%d", q.Before)
	}
	if !q.EventID.IsZero() {
		with(" and a.event_id = $%d", q.EventID)
	}
	if q.Outcome != "" {
		with(" and a.outcome = $%d", string(q.Outcome))
	}
	with(" order by a.attempt_id desc limit $%d", q.Limit)
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		var there bool
		if err := tx.QueryRow(ctx, "select exists (select from webhooks w where w.tenant_id = $1 and w.name = $2)", tenant, name).Scan(&there); err != nil {
			return fmt.Errorf("look for a webhook: %w", err)
		}
		if !there {
			return noWebhook(name)
		}
		rows, _ := tx.Query(ctx, attemptColumns+" from webhook_attempts as a where a.tenant_id = $1 and a.name = $2"+where, params...)
		attempts, err = pgx.CollectRows(rows, scanAttempt)
		if err != nil {
			return fmt.Errorf("read a webhook's attempts: %w", err)
		}
		return nil
	})
	return attempts, err
}

// attemptColumns are the columns that scanAttempt expects, of the table of attempts as a.
const attemptColumns = `
	select a.attempt_id, a.event_id, a.event_type, a.position, a.attempt, a.replay, a.url, a.outcome, a.status, a.took, a.error, a.excerpt, a.at, a.next_at`

func scanAttempt(row pgx.CollectableRow) (Attempt, error) {
	var a Attempt
	var took int64
	err := row.Scan(&a.ID, &a.EventID, &a.Type, &a.Position, &a.Attempt, &a.Replay, &a.URL, &a.Outcome, &a.Status, &took, &a.Error, &a.Excerpt,
		(*pg.Moment)(&a.At), (*pg.Moment)(&a.NextAt))
	a.Took = time.Duration(took) * time.Microsecond
	return a, err
}

// ForgetAttempts removes the attempts to send the events at positions: receivers' answers may quote them.
func (s *Postgres) ForgetAttempts(ctx context.Context, tenant domain.TenantID, positions []int64) (int64, error) {
	return pg.ExecUnder(ctx, s.db.App, tenant, "remove attempts",
		"delete from webhook_attempts a where a.tenant_id = $1 and a.position = any ($2::bigint[])", tenant, positions)
}
