package registry

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// inForce joins the projection p to the tenant's build b of it, if that is in force. A build with a base is in force
// while the projection's own live build is that base, so a swap for all ends it. An inline build is always in force.
func inForce(tenant string) string {
	return "b.tenant_id = " + tenant + " and b.owner = p.tenant_id and b.name = p.name and (b.base is null or b.base = p.build)"
}

// LiveProjection returns a projection as the tenant sees it. Build and Definition are those that are live for the
// tenant. HeldBy is the rebuild, for all tenants or for this one, that holds that build still. Inline says whether the
// tenant's appends fold into it. It returns domain.CodeNotFound if there is none that the tenant may see.
func (s *Registry) LiveProjection(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID) (domain.Projection, error) {
	projection, ok, err := pg.SelectOneUnder(ctx, s.db.App, tenant, "read a projection as a tenant sees it", scanLive,
		"select "+projectionColumns+`, b.build, b.definition, b.held_by::text, b.build is not null and b.base is null, `+leftBehind+`
		from projections p left join tenant_builds b on `+inForce("$3")+`
		where p.tenant_id = $1 and p.name = $2`, id.Owner, id.Name, tenant)
	if err == nil && !ok {
		err = noProjection(id)
	}
	return projection, err
}

func scanLive(row pgx.CollectableRow) (domain.Projection, error) {
	var build *int64
	var definition []byte
	var heldBy string
	var inline bool
	var fault string
	var position int64
	p, err := scanProjectionAnd(row, &build, &definition, (*pg.NullText)(&heldBy), &inline, (*pg.NullText)(&fault), &position)
	if err != nil || build == nil {
		return p, err
	}
	p.Build, p.HeldBy, p.Inline = *build, cmp.Or(heldBy, p.HeldBy), inline
	if inline {
		p.HeldBy = heldBy // the projection's hold is on another build than appends fold into
	}
	if fault != "" {
		p.Fault = &domain.TenantFault{Reason: fault, Position: position}
	}
	if definition != nil {
		p.Definition = domain.Definition{}
		err = pg.DecodeStrictly(definition, &p.Definition)
	}
	return p, err
}

// TenantBuilds returns the tenants' builds that were changed after since, the greatest UpdatedAt that the caller has
// seen; zero: all. It includes builds that are no longer in force while their rows exist, but never removed ones.
// Changes from shortly before since are returned again, as by AllProjections.
func (s *Registry) TenantBuilds(ctx context.Context, since time.Time) ([]domain.TenantBuild, error) {
	return pg.Select(ctx, s.db.System, "list the tenants' builds", scanTenantBuild, "select "+tenantBuildColumns+`
		from tenant_builds b
		where b.updated_at > $1
		  or b.updated_at > $1 - interval '10 seconds' and b.updated_at > now() - interval '30 seconds'`, since)
}

// leftBehind returns why a rebuild of the projection p left the tenant on its build b, if it did, and at which event.
const leftBehind = "case when b.pinned_to = p.build then b.fault end, coalesce(b.fault_position, 0)"

const tenantBuildColumns = `b.tenant_id, b.owner, b.name, b.build, coalesce(b.base, 0), b.definition, b.held_by::text, coalesce(b.pinned_to, 0),
	b.fault, coalesce(b.fault_position, 0), b.updated_at`

func scanTenantBuild(row pgx.CollectableRow) (domain.TenantBuild, error) {
	var b domain.TenantBuild
	var definition []byte
	var fault string
	var position int64
	err := row.Scan(&b.Tenant, &b.Owner, &b.Name, &b.Build, &b.Base, &definition, (*pg.NullText)(&b.HeldBy), &b.PinnedTo,
		(*pg.NullText)(&fault), &position, (*pg.Moment)(&b.UpdatedAt))
	if fault != "" {
		b.Fault = &domain.TenantFault{Tenant: b.Tenant, Reason: fault, Position: position}
	}
	if err == nil && definition != nil {
		b.Definition = new(domain.Definition)
		err = pg.DecodeStrictly(definition, b.Definition)
	}
	return b, err
}
