package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/pg"
)

// A run of a policy announces how far it will remove events, asks all holders, and removes slice by slice. It uses only
// the retention login. Of two runs of one policy, only the one that announced last removes events: its id is in the
// floor's row, which each slice locks. Each slice also holds the policy's row for share. So after a change or removal
// of the policy, the old policy removes nothing more. Lock order: the policy's row, then the floor's.

var (
	// Recorded times never run backwards in a log, so the events that are old enough are those up to a position.
	retentionRipe = pg.Statement{Name: "manifold_retention_ripe", SQL: eventlog.HalvingSQL("e.position", "e.created_at", "now() - $2::bigint * interval '1 microsecond'",
		"select l.head from logs as l where l.tenant_id = $1::uuid", "")}

	// The n-th newest event of a category before a position.
	retentionNth = pg.Statement{Name: "manifold_retention_nth", SQL: `
		select e.position from events as e
		where e.tenant_id = $1::uuid and e.category = $2::text and e.position < $3::bigint
		order by e.position desc offset $4::bigint limit 1`}

	retentionNext = pg.Statement{Name: "manifold_retention_next", SQL: `
		select e.position, e.created_at from events as e
		where e.tenant_id = $1::uuid and e.category = $2::text and e.position > $3::bigint order by e.position limit 1`}
)

// BeginRetention reads the input of a run of a category's policy, or returns domain.CodeNotFound if there is none.
// Events that were recorded less than grace ago are not ripe.
func (s *Postgres) BeginRetention(ctx context.Context, tenant domain.TenantID, category string, grace time.Duration) (work Work, err error) {
	err = pg.Under(ctx, s.db.Retention, tenant, func(tx pgx.Tx) error {
		status, err := readRetention(ctx, tx, tenant, category)
		if err != nil {
			return err
		}
		work = Work{Policy: status.Policy, Revision: status.Revision, Spared: status.Spared, AskedAt: status.AskedAt, Floor: status.Floor}
		return readRetentionWork(ctx, tx, tenant, grace, &work)
	})
	return work, err
}

// TryRetention is BeginRetention for a policy that need not be stored, as if it were new.
func (s *Postgres) TryRetention(ctx context.Context, tenant domain.TenantID, policy Policy, grace time.Duration) (work Work, err error) {
	err = pg.Under(ctx, s.db.Retention, tenant, func(tx pgx.Tx) error {
		work = Work{Policy: policy}
		return readRetentionWork(ctx, tx, tenant, grace, &work)
	})
	return work, err
}

func readRetentionWork(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, grace time.Duration, work *Work) error {
	err := tx.QueryRow(ctx, `
		select coalesce((select l.head from logs l where l.tenant_id = $1), 0), coalesce((select p.swept_to from retention_policies p
		  where p.tenant_id = $1 and p.category = $2 and p.revision = $3), 0), coalesce((select p.compacted_to from retention_policies p
		  where p.tenant_id = $1 and p.category = $2 and p.revision = $3), 0)`, tenant, work.Category, work.Revision).
		Scan(&work.Head, &work.SweptTo, &work.CompactedTo)
	if err != nil {
		return fmt.Errorf("read how far retention has come: %w", err)
	}
	// Read the age first: both are relative to the transaction's beginning.
	for _, by := range []struct {
		age time.Duration
		to  *int64
	}{{work.MaxAge, &work.Aged}, {grace, &work.Ripe}} {
		if by.to == &work.Aged && by.age == 0 {
			continue
		}
		if err := tx.QueryRow(ctx, retentionRipe.SQL, tenant, by.age.Microseconds()).Scan(by.to); err != nil {
			return fmt.Errorf("look for what is old enough to be removed: %w", err)
		}
	}
	return nil
}

// RetentionNth returns the position of the n-th newest event of a category before a position; 0 if there are fewer. It
// walks past all of them in the index, so count many events in several steps.
func (s *Postgres) RetentionNth(ctx context.Context, tenant domain.TenantID, category string, below, n int64) (position int64, err error) {
	err = pg.Under(ctx, s.db.Retention, tenant, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, retentionNth.SQL, tenant, category, below, n-1).Scan(&position)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("count a category's newest events: %w", err)
		}
		return nil
	})
	return position, err
}

// RetentionNext returns the first event of a category after a position, and when it was recorded; 0 if there is none.
func (s *Postgres) RetentionNext(ctx context.Context, tenant domain.TenantID, category string, above int64) (position int64, at time.Time, err error) {
	err = pg.Under(ctx, s.db.Retention, tenant, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, retentionNext.SQL, tenant, category, above).Scan(&position, (*pg.Moment)(&at))
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("look for a category's next event: %w", err)
		}
		return nil
	})
	return position, at, err
}

// AnnounceRetention announces that a run may remove events of a category up to a position from now on, replacing any
// other run. It returns the announced position, which is at least the highest removed one. A higher earlier
// announcement is withdrawn. It returns domain.CodeConflict if the policy of that revision no longer exists.
func (s *Postgres) AnnounceRetention(ctx context.Context, tenant domain.TenantID, category string, revision int64, run RunID, upTo int64) (announced int64, err error) {
	err = pg.Under(ctx, s.db.Retention, tenant, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			insert into retention_floors as f (tenant_id, category, announced_to, run_id)
			select p.tenant_id, p.category, $5::bigint, $4::uuid from retention_policies p
			where p.tenant_id = $1 and p.category = $2 and p.revision = $3 for share
			on conflict (tenant_id, category) do update
			set announced_to = greatest(f.removed_to, excluded.announced_to), run_id = excluded.run_id, updated_at = excluded.updated_at
			returning f.announced_to`, tenant, category, revision, run, upTo).Scan(&announced)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return policyChanged(category)
		case err != nil:
			return fmt.Errorf("announce what retention removes: %w", err)
		}
		return nil
	})
	return announced, err
}

func policyChanged(category string) error {
	return domain.Errorf(domain.CodeConflict, "category", "the retention policy of the category %q was changed or removed, or another run of it has begun", category)
}

// WithdrawRetention lowers a run's announcement to what has been removed. If the category no longer has a policy, it
// does so for any run's announcement.
func (s *Postgres) WithdrawRetention(ctx context.Context, tenant domain.TenantID, category string, run RunID) error {
	return pg.Under(ctx, s.db.Retention, tenant, func(tx pgx.Tx) error { return withdraw(ctx, tx, tenant, category, run) })
}

func withdraw(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, category string, run RunID) error {
	_, err := tx.Exec(ctx, `
		update retention_floors f set announced_to = f.removed_to, updated_at = now()
		where f.tenant_id = $1 and f.category = $2 and f.announced_to > f.removed_to
		  and (f.run_id = $3 or not exists (select from retention_policies p where p.tenant_id = $1 and p.category = $2))`, tenant, category, run)
	if err != nil {
		return fmt.Errorf("take back what retention has announced: %w", err)
	}
	return nil
}

// EndRetention lowers a run's announcement to what has been removed, and stores the run's result with its policy, if
// that still exists. spared is the number of spared events of the category now.
func (s *Postgres) EndRetention(ctx context.Context, tenant domain.TenantID, end End) (spared int64, err error) {
	heldBy := end.HeldBy
	if heldBy == nil {
		heldBy = []domain.RetentionHold{}
	}
	holds, err := json.Marshal(heldBy)
	if err != nil {
		return 0, fmt.Errorf("save the holds of a run: %w", err)
	}
	err = pg.Under(ctx, s.db.Retention, tenant, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			update retention_policies p
			set swept_to = greatest(p.swept_to, @sweptTo), compacted_to = greatest(p.compacted_to, @compactedTo), held_by = @heldBy,
			  last_run_at = now(), last_error = @error,
			  spared = (select count(*) from retention_spared s where s.tenant_id = @tenant and s.category = @category),
			  asked_at = case when @finished and p.asked_at <= @askedAt::timestamptz then null else p.asked_at end
			where p.tenant_id = @tenant and p.category = @category and p.revision = @revision returning p.spared`,
			pgx.NamedArgs{
				"tenant": tenant, "category": end.Category, "revision": end.Revision, "sweptTo": end.SweptTo, "compactedTo": end.CompactedTo,
				"heldBy": holds, "error": pg.TextOrNull(end.Error), "finished": end.Finished, "askedAt": pg.TimeOrNull(end.AskedAt),
			}).Scan(&spared)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("save the result of a run: %w", err)
		}
		return withdraw(ctx, tx, tenant, end.Category, end.Run)
	})
	return spared, err
}
