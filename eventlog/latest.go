package eventlog

import (
	"context"
	"errors"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

var (
	// Each stream's newest event is the last of its part of the index.
	latestOf = pg.Statement{Name: "manifold_latest", SQL: `
		select ` + EventColumns + ` from unnest($2::text[]) with ordinality as s(stream_id, place)
		cross join lateral (
			select * from events as e where e.tenant_id = $1::uuid and e.stream_id = s.stream_id
			order by e.stream_version desc limit 1
		) as e
		order by s.place`}

	eventByID = pg.Statement{Name: "manifold_event", SQL: `
		select ` + EventColumns + ` from events as e where e.tenant_id = $1::uuid and e.event_id = $2::uuid`}
)

// Latest returns the newest event of each stream, in the order of streams. Streams without events are left out. The
// result ends with the event that exceeds maxBytes of data and metadata; 0: no limit.
func (s *Log) Latest(ctx context.Context, tenant domain.TenantID, streams []string, maxBytes int) ([]domain.Event, error) {
	events := eventReader{maxBytes: maxBytes}
	err := s.db.ReadInTurn(ctx, tenant, func() { events.back(eventMark{}) },
		pg.Query{Statement: &latestOf, Params: [][]byte{pg.TenantParam(tenant), pg.TextsParam(streams)}, Row: events.row})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	s.observeRead(len(events.events))
	return events.events, nil
}

// Event returns one event by its id, or CodeNotFound if it does not exist or no longer exists.
func (s *Log) Event(ctx context.Context, tenant domain.TenantID, id domain.EventID) (domain.Event, error) {
	var events eventReader
	err := s.db.ReadInTurn(ctx, tenant, func() { events.back(eventMark{}) },
		pg.Query{Statement: &eventByID, Params: [][]byte{pg.TenantParam(tenant), pg.UUIDParam(id)}, Row: events.row})
	if err != nil {
		return domain.Event{}, err
	}
	if len(events.events) == 0 {
		return domain.Event{}, domain.Errorf(domain.CodeNotFound, "", "there is no event %s", id)
	}
	s.observeRead(1)
	return events.events[0], nil
}
