package eventlog

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// recordedAt reads only the primary key and the one row that it leads to.
var recordedAt = pg.Statement{Name: "manifold_recorded_at", SQL: `
	select p.position, (
		select e.created_at from events as e
		where e.tenant_id = $1::uuid and e.position >= p.position order by e.position limit 1
	)
	from unnest($2::bigint[]) as p(position)`}

// RecordedAt returns when the event at each position was recorded. If that event no longer exists, it returns the time
// of the next event. Positions after the head are left out.
func (s *Log) RecordedAt(ctx context.Context, tenant domain.TenantID, positions []int64) (map[int64]time.Time, error) {
	var at map[int64]time.Time
	reset := func() { at = make(map[int64]time.Time, len(positions)) }
	wanted := pg.AppendArrayHeader(nil, pgtype.Int8OID, len(positions))
	for _, position := range positions {
		wanted = pg.AppendInt8Element(wanted, position)
	}
	err := s.db.Read(ctx, tenant, reset, pg.Query{Statement: &recordedAt, Params: [][]byte{pg.TenantParam(tenant), wanted}, Row: func(values [][]byte) error {
		if values[1] != nil {
			at[pg.Int8Value(values[0])] = pg.TimeValue(values[1])
		}
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return at, nil
}
