package eventlog

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

var (
	atPositions = pg.Statement{Name: "manifold_at_positions", SQL: `
		select ` + EventColumns + ` from unnest($2::bigint[]) with ordinality as p(position, n)
		cross join lateral (
			select * from events as e where e.tenant_id = $1::uuid and e.position = p.position limit 1
		) as e
		order by p.n`}

	headersAtPositions = pg.Statement{Name: "manifold_headers_at_positions", SQL: `
		select e.position, e.event_id, e.stream_id, e.stream_version, e.event_type from unnest($2::bigint[]) as p(position)
		cross join lateral (
			select * from events as e where e.tenant_id = $1::uuid and e.position = p.position limit 1
		) as e`}

	// The limit is inside, where it counts what the index returns: very many events may lie beyond the position.
	nextInStreams = pg.Statement{Name: "manifold_next_in_streams", SQL: `
		select ` + EventColumns + ` from unnest($2::text[], $3::bigint[]) with ordinality as p(stream_id, version, n)
		cross join lateral (
			select * from events as e
			where e.tenant_id = $1::uuid and e.stream_id = p.stream_id and e.stream_version > p.version
			order by e.stream_version limit $5::bigint
		) as e
		where e.position <= $4::bigint
		order by p.n, e.stream_version`}

	eventPosition = pg.Statement{Name: "manifold_event_position", SQL: `select e.position from events as e where e.tenant_id = $1::uuid and e.event_id = $2::uuid`}
)

// ReadPositions returns the events at these positions, in the given order. Missing events are left out.
func (s *Log) ReadPositions(ctx context.Context, tenant domain.TenantID, positions []int64) ([]domain.Event, error) {
	return s.readEvents(ctx, tenant, &atPositions, pg.TenantParam(tenant), pg.Int8sParam(positions))
}

// ReadHeaders returns the events at these positions, in any order, with Position, ID, Stream, Version and Type only.
// Missing events are left out.
func (s *Log) ReadHeaders(ctx context.Context, tenant domain.TenantID, positions []int64) ([]domain.Event, error) {
	var events []domain.Event
	err := s.db.Read(ctx, tenant, func() { events = make([]domain.Event, 0, len(positions)) },
		pg.Query{Statement: &headersAtPositions, Params: [][]byte{pg.TenantParam(tenant), pg.Int8sParam(positions)}, Row: func(values [][]byte) error {
			events = append(events, domain.Event{
				Position: pg.Int8Value(values[0]), ID: pg.UUIDValue(values[1]), Stream: string(values[2]), Version: pg.Int8Value(values[3]), Type: string(values[4]),
			})
			return nil
		}})
	return events, err
}

// NextInStreams returns, for each stream, the next limit events after the place and not beyond the position to. The
// result is ordered by places, and for each stream by version. If a stream has fewer than limit events, there are no
// more up to that position. The cost does not depend on how many other events a stream has.
func (s *Log) NextInStreams(ctx context.Context, tenant domain.TenantID, places []domain.StreamPlace, to int64, limit int) ([]domain.Event, error) {
	guesses := make([]streamVersion, len(places))
	for i, place := range places {
		guesses[i] = streamVersion{place.Stream, place.Version}
	}
	streams, versions := guessParams(guesses)
	return s.readEvents(ctx, tenant, &nextInStreams, pg.TenantParam(tenant), streams, versions, pg.Int8Param(to), pg.Int8Param(int64(limit)))
}

func (s *Log) readEvents(ctx context.Context, tenant domain.TenantID, st *pg.Statement, params ...[]byte) ([]domain.Event, error) {
	var events eventReader
	if err := s.db.Read(ctx, tenant, func() { events.back(eventMark{}) }, pg.Query{Statement: st, Params: params, Row: events.row}); err != nil {
		return nil, err
	}
	s.observeRead(len(events.events))
	return events.events, nil
}

// EventPositionQuery reads the position of an event, as one query of a larger read under the tenant. If there
// is no such event, the query has no row, and position does not change.
func EventPositionQuery(tenant domain.TenantID, id domain.EventID, position *int64) pg.Query {
	return pg.Query{Statement: &eventPosition, Params: [][]byte{pg.TenantParam(tenant), pg.UUIDParam(id)}, Row: func(values [][]byte) error {
		*position = pg.Int8Value(values[0])
		return nil
	}}
}

// EventPosition returns the position of an event, or domain.CodeNotFound if there is no such event.
func (s *Log) EventPosition(ctx context.Context, tenant domain.TenantID, id domain.EventID) (int64, error) {
	position, err := s.number(ctx, tenant, &eventPosition, pg.TenantParam(tenant), pg.UUIDParam(id))
	if err == nil && position == 0 {
		err = domain.Errorf(domain.CodeNotFound, "", "there is no event %s", id)
	}
	return position, err
}

// VersionBefore returns the version that a stream had before a position: that of its newest event there. If retention
// has removed that event, it is one less than the next event's version. It is 0 if the stream had none.
func (s *Log) VersionBefore(ctx context.Context, tenant domain.TenantID, stream string, position int64) (int64, error) {
	return s.number(ctx, tenant, &versionBefore, pg.TenantParam(tenant), pg.Int8Param(position-1), []byte(stream))
}

// guessParams returns the names and versions of streams as two arrays.
func guessParams(guesses []streamVersion) (streams, versions []byte) {
	streams = pg.AppendArrayHeader(nil, pgtype.TextOID, len(guesses))
	versions = pg.AppendArrayHeader(nil, pgtype.Int8OID, len(guesses))
	for _, guess := range guesses {
		streams, versions = pg.AppendTextElement(streams, guess.stream), pg.AppendInt8Element(versions, guess.version)
	}
	return streams, versions
}
