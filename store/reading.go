package store

import (
	"context"
	"fmt"

	"github.com/manifold-es/manifold/domain"
)

// projectionRow reads which build is live for a tenant, whether a rebuild for all tenants or for that one holds it
// still, and which upcasters are in force. Row-level security lets a tenant see its own projections, the shared ones,
// and its own builds.
var projectionRow = statement{"manifold_projection_row", `
	select coalesce(b.build, p.build), p.held_by is not null or b.held_by is not null, b.build is not null and b.base is null,
	` + fmt.Sprintf(upcasterRevision, "$3::uuid") + `
	from projections as p
	left join tenant_builds as b on ` + inForce("$3::uuid") + `
	where p.tenant_id = $1::uuid and p.name = $2::text`}

// ReadFor reads a slice of the tenant's log for the projection with the given id, together with the head and the
// projection's row, in one round trip. It reads in the order that domain.Reading describes, each part with a separate
// snapshot: head, events, what was removed, row. It reads forward, whatever q.Direction says. If MaxBytes cut the slice
// short, Head is at most the position of its last event.
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
		removedToQuery(tenant, q.Categories, &reading.RemovedTo),
		query{&projectionRow, [][]byte{tenantParam(id.Owner), []byte(id.Name), tenantParam(tenant)}, func(values [][]byte) error {
			reading.Found, reading.Build = true, int8Value(values[0])
			reading.Held, reading.Inline = boolValue(values[1]), boolValue(values[2])
			reading.Upcasters = domain.UpcasterRevision{Own: int8Value(values[3]), Shared: int8Value(values[4])}
			return nil
		}},
	)
	if err != nil {
		return domain.Reading{}, err
	}
	reading.Events = events.events
	if reading.RemovedTo < q.From {
		reading.RemovedTo = 0
	}
	if n := len(events.events); events.full {
		reading.Head = min(reading.Head, events.events[n-1].Position)
	}
	s.observeRead(len(reading.Events))
	return reading, nil
}
