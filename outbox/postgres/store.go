package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/outbox"
)

// Store is a drainer's view of an outbox in PostgreSQL. It may be used by many goroutines.
type Store struct {
	pool *pgxpool.Pool

	claim, lock, release, remove, mark, refuse, lag, sweep string
}

var _ outbox.Store = (*Store)(nil)

// Open returns the outbox in a table, for a drainer. The caller still owns the pool. Its login may select, insert,
// update and delete there.
func (t Table) Open(pool *pgxpool.Pool) (*Store, error) {
	name, err := t.quoted()
	if err != nil {
		return nil, err
	}
	return &Store{
		pool: pool,

		// A stream with a row that is leased or rests is left out. Rows that another claim is just taking are skipped,
		// so this claim may have gaps: the rows after the first gap of a stream are removed again.
		claim: `
			with held as materialized (
				select distinct h.stream from ` + name + ` as h where h.published_at is null and h.claim is not null and h.due_at > now()
			), due as materialized (
				select o.sequence, o.stream from ` + name + ` as o
				where o.published_at is null and o.due_at <= now() and not exists (select from held as h where h.stream = o.stream)
				order by o.sequence limit $1 for update of o skip locked
			), gaps as materialized (
				select s.stream, (
					select min(e.sequence) from ` + name + ` as e
					where e.published_at is null and e.stream = s.stream and e.sequence < s.last and e.sequence not in (select d.sequence from due as d)
				) as first
				from (select d.stream, max(d.sequence) as last from due as d group by d.stream) as s
			)
			update ` + name + ` as o set claim = $3::uuid, due_at = now() + $2::bigint * interval '1 microsecond'
			from due as d join gaps as g on g.stream = d.stream
			where o.sequence = d.sequence and o.published_at is null and (g.first is null or d.sequence < g.first)
			returning o.sequence, o.event_id::text, o.stream, o.message::text, o.attempts, o.added_at`,
		lock:    `select from ` + name + ` as o where o.event_id = any($1::uuid[]) order by o.sequence for update`,
		release: `update ` + name + ` as o set claim = null, due_at = now() where o.claim = $1::uuid and o.published_at is null`,
		remove:  `delete from ` + name + ` as o where o.event_id = any($1::uuid[])`,
		mark:    `update ` + name + ` as o set claim = null, published_at = now(), reason = null where o.event_id = any($1::uuid[]) and o.published_at is null`,
		refuse: `
			update ` + name + ` as o set claim = '00000000-0000-0000-0000-000000000000', due_at = now() + r.pause * interval '1 microsecond', attempts = o.attempts + 1, reason = r.reason
			from unnest($2::uuid[], $3::bigint[], $4::text[]) as r(event_id, pause, reason)
			where o.event_id = r.event_id and o.claim = $1::uuid and o.published_at is null`,
		lag: `
			select count(*), coalesce(extract(epoch from now() - min(w.added_at)), 0)::float8
			from (select o.added_at from ` + name + ` as o where o.published_at is null order by o.sequence limit $1) as w`,
		sweep: `
			delete from ` + name + ` as o where o.sequence in (
				select s.sequence from ` + name + ` as s where s.published_at < now() - $1::bigint * interval '1 microsecond'
				order by s.published_at limit $2 for update skip locked)`,
	}, nil
}

// Claim implements outbox.Store.
func (s *Store) Claim(ctx context.Context, limit int, lease time.Duration) (outbox.Claim, error) {
	claim := outbox.Claim{ID: outbox.NewID()}
	rows, err := s.pool.Query(ctx, s.claim, limit, lease.Microseconds(), claim.ID)
	if err != nil {
		return outbox.Claim{}, err
	}
	type numbered struct {
		outbox.Row
		sequence int64
	}
	claimed, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n numbered, err error) {
		var message string
		err = row.Scan(&n.sequence, &n.ID, &n.Stream, &message, &n.Attempts, &n.AddedAt)
		n.Message = []byte(message)
		return n, err
	})
	if err != nil {
		return outbox.Claim{}, err
	}
	slices.SortFunc(claimed, func(a, b numbered) int { return int(a.sequence - b.sequence) })
	for _, row := range claimed {
		claim.Rows = append(claim.Rows, row.Row)
	}
	return claim, nil
}

// Settle implements outbox.Store. It is one transaction. First it locks the rows in their order. If the claim's lease
// has ended, another drainer may settle the same rows, and with locks in another order each could wait for the other.
func (s *Store) Settle(ctx context.Context, claim outbox.Claim, outcome outbox.Outcome, keep bool) error {
	batch := &pgx.Batch{}
	claimed := make([]string, len(claim.Rows))
	for i, row := range claim.Rows {
		claimed[i] = row.ID
	}
	batch.Queue(s.lock, claimed)
	if len(outcome.Published) > 0 {
		published := make([]string, len(outcome.Published))
		for i, row := range outcome.Published {
			published[i] = row.ID
		}
		statement := s.remove
		if keep {
			statement = s.mark
		}
		batch.Queue(statement, published)
	}
	if len(outcome.Refused) > 0 {
		var ids, reasons []string
		var pauses []int64
		for _, refusal := range outcome.Refused {
			ids, pauses, reasons = append(ids, refusal.Row.ID), append(pauses, refusal.Pause.Microseconds()), append(reasons, plainText(refusal.Reason))
		}
		batch.Queue(s.refuse, claim.ID, ids, pauses, reasons)
	}
	batch.Queue(s.release, claim.ID)
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return tx.SendBatch(ctx, batch).Close() })
}

// Lag implements outbox.Store.
func (s *Store) Lag(ctx context.Context) (outbox.Lag, error) {
	var lag outbox.Lag
	var seconds float64
	err := s.pool.QueryRow(ctx, s.lag, outbox.MaxLag).Scan(&lag.Waiting, &seconds)
	lag.Oldest = max(0, time.Duration(seconds*float64(time.Second)))
	return lag, err
}

// Sweep implements outbox.Store.
func (s *Store) Sweep(ctx context.Context, keep time.Duration, limit int) (int, error) {
	done, err := s.pool.Exec(ctx, s.sweep, keep.Microseconds(), limit)
	if err != nil {
		return 0, fmt.Errorf("sweep the outbox: %w", err)
	}
	return int(done.RowsAffected()), nil
}

// plainText returns a text that PostgreSQL can store.
func plainText(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
}
