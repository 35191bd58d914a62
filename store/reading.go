package store

import (
	"context"

	"github.com/manifold-es/manifold/domain"
)

// projectionRow looks a projection's live build up. Row-level security lets a tenant see its own and the shared ones.
var projectionRow = statement{"manifold_projection_row", `
	select p.build, p.held_by is not null from projections as p where p.tenant_id = $1::uuid and p.name = $2::text`}

// ReadFor reads a slice of the tenant's log for the projection with the given id, with the head and the projection's row,
// in one round trip and in the order that domain.Reading is about: head, events, row, each with a snapshot of its own.
// It reads forward, whatever q.Direction says. Where MaxBytes cut the slice short, Head is no higher than its last event.
func (s *Store) ReadFor(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, q domain.LogQuery) (domain.Reading, error) {
	var reading domain.Reading
	events := eventReader{maxBytes: q.MaxBytes, toTheEnd: true}
	q.Direction = domain.Forward
	reset := func() {
		reading = domain.Reading{}
		events.back(eventMark{})
	}
	err := s.read(ctx, tenant, reset,
		query{&checkLog, [][]byte{tenantParam(tenant)}, func(values [][]byte) error {
			reading.Head = int8Value(values[0])
			return nil
		}},
		logQuery(tenant, q, q.From, q.Limit, &events),
		query{&projectionRow, [][]byte{tenantParam(id.Owner), []byte(id.Name)}, func(values [][]byte) error {
			reading.Found, reading.Build, reading.Held = true, int8Value(values[0]), boolValue(values[1])
			return nil
		}},
	)
	if err != nil {
		return domain.Reading{}, err
	}
	reading.Events = events.events
	if n := len(events.events); events.full {
		reading.Head = min(reading.Head, events.events[n-1].Position)
	}
	s.observeRead(len(reading.Events))
	return reading, nil
}
