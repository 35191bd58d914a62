package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/manifold-es/manifold/outbox"
)

// Store is a drainer's view of an outbox in SQLite. It may be used by many goroutines and processes.
type Store struct {
	db *sql.DB

	claim, release, remove, mark, refuse, lag, sweep string
}

var _ outbox.Store = (*Store)(nil)

// Open returns the outbox in a table, for a drainer. The caller still owns the database.
func (t Table) Open(db *sql.DB) (*Store, error) {
	name, err := t.quoted()
	if err != nil {
		return nil, err
	}
	return &Store{
		db: db,
		// One statement, so that no other writer comes between. A stream with a row that is leased or rests is left
		// out.
		claim: `
			update ` + name + ` set claim = ?1, due_at = ?2 where sequence in (
				select o.sequence from ` + name + ` as o
				where o.published_at is null and o.due_at <= ?3 and o.stream not in (
					select h.stream from ` + name + ` as h where h.published_at is null and h.claim is not null and h.due_at > ?3)
				order by o.sequence limit ?4)
			returning sequence, event_id, stream, message, attempts, added_at`,
		release: `update ` + name + ` set claim = null, due_at = 0 where claim = ?1 and published_at is null`,
		remove:  `delete from ` + name + ` where event_id in (select value from json_each(?1))`,
		mark:    `update ` + name + ` set claim = null, published_at = ?2, reason = null where event_id in (select value from json_each(?1)) and published_at is null`,
		refuse:  `update ` + name + ` set claim = '', due_at = ?3, attempts = attempts + 1, reason = ?4 where event_id = ?2 and claim = ?1 and published_at is null`,
		lag: `
			select count(*), min(w.added_at)
			from (select o.added_at from ` + name + ` as o where o.published_at is null order by o.sequence limit ?1) as w`,
		sweep: `
			delete from ` + name + ` where sequence in (
				select s.sequence from ` + name + ` as s where s.published_at < ?1 order by s.published_at limit ?2)`,
	}, nil
}

// Claim implements outbox.Store.
func (s *Store) Claim(ctx context.Context, limit int, lease time.Duration) (_ outbox.Claim, err error) {
	claim, now := outbox.Claim{ID: outbox.NewID()}, time.Now()
	rows, err := s.db.QueryContext(ctx, s.claim, claim.ID, now.Add(lease).UnixMilli(), now.UnixMilli(), limit)
	if err != nil {
		return outbox.Claim{}, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	type numbered struct {
		outbox.Row
		sequence int64
	}
	var claimed []numbered
	for rows.Next() {
		var row numbered
		var message string
		var added int64
		if err := rows.Scan(&row.sequence, &row.ID, &row.Stream, &message, &row.Attempts, &added); err != nil {
			return outbox.Claim{}, err
		}
		row.Message, row.AddedAt = []byte(message), time.UnixMilli(added)
		claimed = append(claimed, row)
	}
	slices.SortFunc(claimed, func(a, b numbered) int { return cmp.Compare(a.sequence, b.sequence) })
	for _, row := range claimed {
		claim.Rows = append(claim.Rows, row.Row)
	}
	return claim, rows.Err()
}

// Settle implements outbox.Store. It is one transaction.
func (s *Store) Settle(ctx context.Context, claim outbox.Claim, outcome outbox.Outcome, keep bool) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := s.settle(ctx, tx, claim, outcome, keep); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (s *Store) settle(ctx context.Context, tx *sql.Tx, claim outbox.Claim, outcome outbox.Outcome, keep bool) error {
	if len(outcome.Published) > 0 {
		ids := make([]string, len(outcome.Published))
		for i, row := range outcome.Published {
			ids[i] = row.ID
		}
		list, err := json.Marshal(ids)
		if err != nil {
			return err
		}
		statement, args := s.remove, []any{string(list)}
		if keep {
			statement, args = s.mark, append(args, time.Now().UnixMilli())
		}
		if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
			return err
		}
	}
	for _, refusal := range outcome.Refused {
		due := time.Now().Add(refusal.Pause).UnixMilli()
		if _, err := tx.ExecContext(ctx, s.refuse, claim.ID, refusal.Row.ID, due, strings.ToValidUTF8(refusal.Reason, "\uFFFD")); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, s.release, claim.ID)
	return err
}

// Lag implements outbox.Store.
func (s *Store) Lag(ctx context.Context) (lag outbox.Lag, err error) {
	var oldest sql.NullInt64
	if err := s.db.QueryRowContext(ctx, s.lag, outbox.MaxLag).Scan(&lag.Waiting, &oldest); err != nil {
		return outbox.Lag{}, err
	}
	if oldest.Valid {
		lag.Oldest = max(0, time.Since(time.UnixMilli(oldest.Int64)))
	}
	return lag, nil
}

// Sweep implements outbox.Store.
func (s *Store) Sweep(ctx context.Context, keep time.Duration, limit int) (int, error) {
	done, err := s.db.ExecContext(ctx, s.sweep, time.Now().Add(-keep).UnixMilli(), limit)
	if err != nil {
		return 0, err
	}
	removed, err := done.RowsAffected()
	return int(removed), err
}
