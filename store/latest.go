package store

import (
	"context"
	"errors"

	"github.com/manifold-es/manifold/domain"
)

var (
	// Each stream's newest event is the last of its part of the index.
	latestOf = statement{"manifold_latest", `
		select ` + columns + ` from unnest($2::text[]) with ordinality as s(stream_id, place)
		cross join lateral (
			select * from events as e where e.tenant_id = $1::uuid and e.stream_id = s.stream_id
			order by e.stream_version desc limit 1
		) as e
		order by s.place`}

	eventByID = statement{"manifold_event", `
		select ` + columns + ` from events as e where e.tenant_id = $1::uuid and e.event_id = $2::uuid`}
)

// Latest returns the newest event of each of the streams, in their order; a stream that has no events is left out. The answer
// ends with the event that passes maxBytes of data and metadata; 0: there is no such bound.
func (s *Store) Latest(ctx context.Context, tenant domain.TenantID, streams []string, maxBytes int) ([]domain.Event, error) {
	events := eventReader{maxBytes: maxBytes}
	err := s.readInTurn(ctx, tenant, func() { events.back(eventMark{}) },
		query{&latestOf, [][]byte{tenantParam(tenant), textsParam(streams)}, events.row})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	s.observeRead(len(events.events))
	return events.events, nil
}

// Event returns one event by its id. CodeNotFound: there is none, or none any more.
func (s *Store) Event(ctx context.Context, tenant domain.TenantID, id domain.EventID) (domain.Event, error) {
	var events eventReader
	err := s.readInTurn(ctx, tenant, func() { events.back(eventMark{}) },
		query{&eventByID, [][]byte{tenantParam(tenant), uuidParam(id)}, events.row})
	if err != nil {
		return domain.Event{}, err
	}
	if len(events.events) == 0 {
		return domain.Event{}, domain.Errorf(domain.CodeNotFound, "", "there is no event %s", id)
	}
	s.observeRead(1)
	return events.events[0], nil
}
