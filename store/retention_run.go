package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
)

// A run of a policy announces how far it will remove, asks everybody what they still need, and removes slice by slice. All of
// it is the retention login's. Of two runs of one policy only the one that announced last removes anything: its id is in the
// floor's row, which each slice locks. The policy's row is held for share, so that whoever changes it or takes it away knows
// that nothing is removed by the old one from then on. Whoever locks both locks the policy's first.

var (
	// Recorded times never run backwards in a log, so what is old enough is all that is up to a position.
	retentionRipe = statement{"manifold_retention_ripe", halvingSQL("e.position", "e.created_at", "now() - $2::bigint * interval '1 microsecond'",
		"select l.head from logs as l where l.tenant_id = $1::uuid", "")}

	// The n-th newest event of a category below a position.
	retentionNth = statement{"manifold_retention_nth", `
		select e.position from events as e
		where e.tenant_id = $1::uuid and e.category = $2::text and e.position < $3::bigint
		order by e.position desc offset $4::bigint limit 1`}

	retentionNext = statement{"manifold_retention_next", `
		select e.position, e.created_at from events as e
		where e.tenant_id = $1::uuid and e.category = $2::text and e.position > $3::bigint order by e.position limit 1`}
)

// BeginRetention reads what a run of a category's policy begins with; domain.CodeNotFound where there is none. What was recorded
// less than grace ago is not ripe.
func (s *Store) BeginRetention(ctx context.Context, tenant domain.TenantID, category string, grace time.Duration) (work domain.RetentionWork, err error) {
	err = under(ctx, s.retention, tenant, func(tx pgx.Tx) error {
		status, err := readRetention(ctx, tx, tenant, category)
		if err != nil {
			return err
		}
		work = domain.RetentionWork{RetentionPolicy: status.RetentionPolicy, Revision: status.Revision, Spared: status.Spared, AskedAt: status.AskedAt, Floor: status.Floor}
		return readRetentionWork(ctx, tx, tenant, grace, &work)
	})
	return work, err
}

// TryRetention is BeginRetention for a policy that need not be kept: as if it were new.
func (s *Store) TryRetention(ctx context.Context, tenant domain.TenantID, policy domain.RetentionPolicy, grace time.Duration) (work domain.RetentionWork, err error) {
	err = under(ctx, s.retention, tenant, func(tx pgx.Tx) error {
		work = domain.RetentionWork{RetentionPolicy: policy}
		return readRetentionWork(ctx, tx, tenant, grace, &work)
	})
	return work, err
}

func readRetentionWork(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, grace time.Duration, work *domain.RetentionWork) error {
	err := tx.QueryRow(ctx, `
		select coalesce((select l.head from logs l where l.tenant_id = $1), 0), coalesce((select p.swept_to from retention_policies p
		  where p.tenant_id = $1 and p.category = $2 and p.revision = $3), 0), coalesce((select p.compacted_to from retention_policies p
		  where p.tenant_id = $1 and p.category = $2 and p.revision = $3), 0)`, tenant, work.Category, work.Revision).
		Scan(&work.Head, &work.SweptTo, &work.CompactedTo)
	if err != nil {
		return fmt.Errorf("read how far retention has come: %w", err)
	}
	// The age first: both are as of the transaction's beginning.
	for _, by := range []struct {
		age time.Duration
		to  *int64
	}{{work.MaxAge, &work.Aged}, {grace, &work.Ripe}} {
		if by.to == &work.Aged && by.age == 0 {
			continue
		}
		if err := tx.QueryRow(ctx, retentionRipe.sql, tenant, by.age.Microseconds()).Scan(by.to); err != nil {
			return fmt.Errorf("look for what is old enough to be removed: %w", err)
		}
	}
	return nil
}

// RetentionNth returns the position of the n-th newest event of a category below a position; 0 where there are fewer. It walks
// past all of them in the index: of many it is to be asked in several steps.
func (s *Store) RetentionNth(ctx context.Context, tenant domain.TenantID, category string, below, n int64) (position int64, err error) {
	err = under(ctx, s.retention, tenant, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, retentionNth.sql, tenant, category, below, n-1).Scan(&position)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("count a category's newest events: %w", err)
		}
		return nil
	})
	return position, err
}

// RetentionNext returns the first event of a category above a position, and when it was recorded; 0 where there is none.
func (s *Store) RetentionNext(ctx context.Context, tenant domain.TenantID, category string, above int64) (position int64, at time.Time, err error) {
	err = under(ctx, s.retention, tenant, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, retentionNext.sql, tenant, category, above).Scan(&position, (*moment)(&at))
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("look for a category's next event: %w", err)
		}
		return nil
	})
	return position, at, err
}

// AnnounceRetention says that a run may remove events of a category up to a position from now on, in place of any other run,
// and returns how far is announced then: no less than what is gone. An earlier announcement that is higher is taken back.
// domain.CodeConflict where the policy of that revision is not there any more.
func (s *Store) AnnounceRetention(ctx context.Context, tenant domain.TenantID, category string, revision int64, run domain.RetentionRunID, upTo int64) (announced int64, err error) {
	err = under(ctx, s.retention, tenant, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			insert into retention_floors as f (tenant_id, category, announced_to, run_id)
			select p.tenant_id, p.category, $5::bigint, $4::uuid from retention_policies p
			where p.tenant_id = $1 and p.category = $2 and p.revision = $3 for share
			on conflict (tenant_id, category) do update
			set announced_to = greatest(f.removed_to, excluded.announced_to), run_id = excluded.run_id, updated_at = now()
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

// WithdrawRetention takes a run's announcement back to what is gone, and anybody's where the category has no policy any more.
func (s *Store) WithdrawRetention(ctx context.Context, tenant domain.TenantID, category string, run domain.RetentionRunID) error {
	return under(ctx, s.retention, tenant, func(tx pgx.Tx) error { return withdraw(ctx, tx, tenant, category, run) })
}

func withdraw(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, category string, run domain.RetentionRunID) error {
	_, err := tx.Exec(ctx, `
		update retention_floors f set announced_to = f.removed_to, updated_at = now()
		where f.tenant_id = $1 and f.category = $2 and f.announced_to > f.removed_to
		  and (f.run_id = $3 or not exists (select from retention_policies p where p.tenant_id = $1 and p.category = $2))`, tenant, category, run)
	if err != nil {
		return fmt.Errorf("take back what retention has announced: %w", err)
	}
	return nil
}

// EndRetention takes a run's announcement back to what is gone, and keeps what became of the run with its policy, if that is
// there still. spared is how many events of the category are spared now.
func (s *Store) EndRetention(ctx context.Context, tenant domain.TenantID, end domain.RetentionEnd) (spared int64, err error) {
	heldBy := end.HeldBy
	if heldBy == nil {
		heldBy = []domain.RetentionHold{}
	}
	holds, err := json.Marshal(heldBy)
	if err != nil {
		return 0, fmt.Errorf("write what has held a run: %w", err)
	}
	err = under(ctx, s.retention, tenant, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			update retention_policies p
			set swept_to = greatest(p.swept_to, $4), compacted_to = greatest(p.compacted_to, $5), held_by = $6, last_run_at = now(), last_error = $7,
			  spared = (select count(*) from retention_spared s where s.tenant_id = $1 and s.category = $2),
			  asked_at = case when $8 and p.asked_at <= $9::timestamptz then null else p.asked_at end
			where p.tenant_id = $1 and p.category = $2 and p.revision = $3 returning p.spared`,
			tenant, end.Category, end.Revision, end.SweptTo, end.CompactedTo, holds, text(end.Error), end.Finished, instant(end.AskedAt)).Scan(&spared)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("keep what has become of a run: %w", err)
		}
		return withdraw(ctx, tx, tenant, end.Category, end.Run)
	})
	return spared, err
}
