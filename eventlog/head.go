package eventlog

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

var (
	readHead = pg.Statement{Name: "manifold_head", SQL: `select l.head, l.last_at from logs as l where l.tenant_id = $1::uuid`}

	// The search halves the range between lo and hi. Everything up to lo was recorded in time, nothing after hi was. It
	// examines the newest event up to the middle, because retention may have removed the event in the middle.
	//
	// The middle is calculated separately, which "offset 0" ensures. Under row-level security, an index cannot serve a
	// condition that calculates: the calculation might fail and so reveal rows of other tenants.
	positionAt = pg.Statement{Name: "manifold_position_at", SQL: HalvingSQL("e.position", "e.created_at", "$2::timestamptz",
		"select l.head from logs as l where l.tenant_id = $1::uuid", "")}
	versionAt     = pg.Statement{Name: "manifold_version_at", SQL: HalvingSQL("e.stream_version", "e.created_at", "$2::timestamptz", newestInStream, "and e.stream_id = $3::text")}
	versionBefore = pg.Statement{Name: "manifold_version_before", SQL: HalvingSQL("e.stream_version", "e.position", "$2::bigint", newestInStream, "and e.stream_id = $3::text")}
)

const newestInStream = `select e.stream_version from events as e where e.tenant_id = $1::uuid and e.stream_id = $3::text order by e.stream_version desc limit 1`

// HalvingSQL finds the last place whose event has an at up to the requested one. Both must increase together.
func HalvingSQL(place, at, upTo, newest, and string) string {
	return `with recursive search(lo, hi) as (
			select 0::bigint, coalesce((` + newest + `), 0)
			union all
			select
				case when e.at is null or e.at <= ` + upTo + ` then s.middle else s.lo end,
				case when e.at > ` + upTo + ` then e.place - 1 else s.hi end
			from (select s.lo, s.hi, (s.lo + s.hi + 1) / 2 as middle from search as s where s.lo < s.hi offset 0) as s
			left join lateral (
				select ` + place + ` as place, ` + at + ` as at from events as e
				where e.tenant_id = $1::uuid ` + and + ` and ` + place + ` > s.lo and ` + place + ` <= s.middle
				order by ` + place + ` desc limit 1
			) as e on true
		)
		select s.lo from search as s where s.lo >= s.hi`
}

// Head returns the head of the tenant's log; position 0 if nothing was ever appended.
func (s *Log) Head(ctx context.Context, tenant domain.TenantID) (domain.Head, error) {
	head := domain.Head{Tenant: tenant}
	err := s.db.Read(ctx, tenant, nil, pg.Query{Statement: &readHead, Params: [][]byte{pg.TenantParam(tenant)}, Row: func(values [][]byte) error {
		head.Position, head.LastAt = pg.Int8Value(values[0]), pg.TimeValue(values[1])
		return nil
	}})
	return head, err
}

// Heads returns the heads of all logs whose newest event was recorded after the given time. If the time is zero, it
// returns the heads of all logs with an event. An append may become visible some time after the moment that it records.
// So a caller that polls must go back a little each time, as Listen does.
func (s *Log) Heads(ctx context.Context, since time.Time) ([]domain.Head, error) {
	rows, err := s.db.System.Query(ctx, `select l.tenant_id, l.head, l.last_at from logs as l
		where l.last_at > coalesce($1::timestamptz, '-infinity') order by l.tenant_id`, pg.TimeOrNull(since))
	if err != nil {
		return nil, pg.Unavailable(err)
	}
	defer rows.Close()
	var heads []domain.Head
	for rows.Next() {
		var head domain.Head
		if err := rows.Scan((*[16]byte)(&head.Tenant), &head.Position, &head.LastAt); err != nil {
			return nil, err
		}
		head.LastAt = head.LastAt.UTC()
		heads = append(heads, head)
	}
	return heads, pg.Unavailable(rows.Err())
}

// PositionAt returns the last position that was recorded at or before the given time; 0 if there is none. A removed
// event counts as recorded at the time of the next older event that still exists.
func (s *Log) PositionAt(ctx context.Context, tenant domain.TenantID, at time.Time) (int64, error) {
	return s.number(ctx, tenant, &positionAt, pg.TenantParam(tenant), pg.TimeParam(at))
}

// PositionBefore returns the last position that was recorded before the given time; 0 if there is none.
func (s *Log) PositionBefore(ctx context.Context, tenant domain.TenantID, at time.Time) (int64, error) {
	return s.PositionAt(ctx, tenant, justBefore(at))
}

// justBefore returns the last moment before at when an event can have been recorded. The log counts in microseconds.
func justBefore(at time.Time) time.Time {
	if whole := at.Truncate(time.Microsecond); !whole.Equal(at) {
		return whole
	}
	return at.Add(-time.Microsecond)
}

// VersionAt returns the version that the stream had at the given time, by the recorded times of its events; 0 if it had
// none.
func (s *Log) VersionAt(ctx context.Context, tenant domain.TenantID, stream string, at time.Time) (int64, error) {
	return s.number(ctx, tenant, &versionAt, pg.TenantParam(tenant), pg.TimeParam(at), []byte(stream))
}

// number reads one number.
func (s *Log) number(ctx context.Context, tenant domain.TenantID, st *pg.Statement, params ...[]byte) (n int64, err error) {
	err = s.db.Read(ctx, tenant, nil, pg.Query{Statement: st, Params: params, Row: func(values [][]byte) error {
		n = pg.Int8Value(values[0])
		return nil
	}})
	return n, err
}

// HeadQuery reads the head of the tenant's log into position. If nothing was ever appended, it leaves position alone.
func HeadQuery(tenant domain.TenantID, position *int64) pg.Query {
	return pg.Query{Statement: &readHead, Params: [][]byte{pg.TenantParam(tenant)}, Row: func(values [][]byte) error {
		*position = pg.Int8Value(values[0])
		return nil
	}}
}
