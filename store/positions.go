package store

import (
	"context"

	"github.com/manifold-es/manifold/domain"
)

var (
	atPositions = statement{"manifold_at_positions", `
		select ` + columns + ` from unnest($2::bigint[]) with ordinality as p(position, n)
		cross join lateral (
			select * from events as e where e.tenant_id = $1::uuid and e.position = p.position limit 1
		) as e
		order by p.n`}

	// The limit is inside, where it counts what the index returns: very many events may lie beyond the position.
	nextInStreams = statement{"manifold_next_in_streams", `
		select ` + columns + ` from unnest($2::text[], $3::bigint[]) with ordinality as p(stream_id, version, n)
		cross join lateral (
			select * from events as e
			where e.tenant_id = $1::uuid and e.stream_id = p.stream_id and e.stream_version > p.version
			order by e.stream_version limit $5::bigint
		) as e
		where e.position <= $4::bigint
		order by p.n, e.stream_version`}

	eventPosition = statement{"manifold_event_position", `select e.position from events as e where e.tenant_id = $1::uuid and e.event_id = $2::uuid`}
)

// ReadPositions returns the events at these positions, in the given order. Missing events are left out.
func (s *Store) ReadPositions(ctx context.Context, tenant domain.TenantID, positions []int64) ([]domain.Event, error) {
	return s.readEvents(ctx, tenant, &atPositions, tenantParam(tenant), int8sParam(positions))
}

// NextInStreams returns, for each stream, the next limit events after the place and not beyond the position to. The
// result is ordered by places, and for each stream by version. If a stream has fewer than limit events, there are no
// more up to that position. The cost does not depend on how many other events a stream has.
func (s *Store) NextInStreams(ctx context.Context, tenant domain.TenantID, places []domain.StreamPlace, to int64, limit int) ([]domain.Event, error) {
	guesses := make([]streamVersion, len(places))
	for i, place := range places {
		guesses[i] = streamVersion{place.Stream, place.Version}
	}
	streams, versions := guessParams(guesses)
	return s.readEvents(ctx, tenant, &nextInStreams, tenantParam(tenant), streams, versions, int8Param(to), int8Param(int64(limit)))
}

func (s *Store) readEvents(ctx context.Context, tenant domain.TenantID, st *statement, params ...[]byte) ([]domain.Event, error) {
	var events eventReader
	if err := s.read(ctx, tenant, func() { events.back(eventMark{}) }, query{st, params, events.row}); err != nil {
		return nil, err
	}
	s.observeRead(len(events.events))
	return events.events, nil
}

// EventPosition returns the position of an event, or domain.CodeNotFound if there is no such event.
func (s *Store) EventPosition(ctx context.Context, tenant domain.TenantID, id domain.EventID) (int64, error) {
	position, err := s.number(ctx, tenant, &eventPosition, tenantParam(tenant), uuidParam(id))
	if err == nil && position == 0 {
		err = domain.Errorf(domain.CodeNotFound, "", "there is no event %s", id)
	}
	return position, err
}

// VersionBefore returns the version that a stream had before a position: that of its newest event there. If retention
// has removed that event, it is one less than the next event's version. It is 0 if the stream had none.
func (s *Store) VersionBefore(ctx context.Context, tenant domain.TenantID, stream string, position int64) (int64, error) {
	return s.number(ctx, tenant, &versionBefore, tenantParam(tenant), int8Param(position-1), []byte(stream))
}
