package registry

import (
	"context"
	"fmt"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// projectionRow reads which build is live for a tenant, whether a rebuild for all tenants or for that one holds it
// still, and which upcasters are in force. Row-level security lets a tenant see its own projections, the shared ones,
// and its own builds.
var projectionRow = pg.Statement{Name: "manifold_projection_row", SQL: `
	select coalesce(b.build, p.build), p.held_by is not null or b.held_by is not null, b.build is not null and b.base is null,
	` + fmt.Sprintf(upcasterRevision, "$3::uuid") + `
	from projections as p
	left join tenant_builds as b on ` + inForce("$3::uuid") + `
	where p.tenant_id = $1::uuid and p.name = $2::text`}

// ReadFor reads a slice of the tenant's log for the projection with the given id, together with the head and the
// projection's row, in one round trip. It reads in the order that domain.Reading describes, each part with a separate
// snapshot: head, events, what was removed, row. It reads forward, whatever q.Direction says. If MaxBytes cut the slice
// short, Head is at most the position of its last event.
func (s *Registry) ReadFor(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, q domain.LogQuery) (domain.Reading, error) {
	var row domain.Reading
	reading, err := s.log.ReadWith(ctx, tenant, q, func() { row = domain.Reading{} },
		pg.Query{Statement: &projectionRow, Params: [][]byte{pg.TenantParam(id.Owner), []byte(id.Name), pg.TenantParam(tenant)}, Row: func(values [][]byte) error {
			row.Found, row.Build = true, pg.Int8Value(values[0])
			row.Held, row.Inline = pg.BoolValue(values[1]), pg.BoolValue(values[2])
			row.Upcasters = domain.UpcasterRevision{Own: pg.Int8Value(values[3]), Shared: pg.Int8Value(values[4])}
			return nil
		}})
	if err != nil {
		return domain.Reading{}, err
	}
	row.Head, row.Events, row.RemovedTo = reading.Head, reading.Events, reading.RemovedTo
	return row, nil
}
