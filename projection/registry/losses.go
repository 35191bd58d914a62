package registry

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// PutLosses notes that a tenant's documents of a build lack events. For a category noted before, the higher position is
// kept.
func (s *Registry) PutLosses(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64, losses []domain.Loss) error {
	if len(losses) == 0 {
		return nil
	}
	categories, positions := make([]string, len(losses)), make([]int64, len(losses))
	for i, loss := range losses {
		categories[i], positions[i] = loss.Category, loss.RemovedTo
	}
	// The tenant comes from its log's row: every tenant that has lost events has one.
	_, err := pg.ExecUnder(ctx, s.db.App, tenant, "record a build's losses", `
		insert into build_losses as b (tenant_id, owner, name, build, category, removed_to)
		select g.tenant_id, $2, $3, $4, n.category, n.removed_to
		from logs g, unnest($5::text[], $6::bigint[]) as n(category, removed_to) where g.tenant_id = $1
		on conflict (tenant_id, owner, name, build, category) do update
		  set removed_to = excluded.removed_to, at = excluded.at where b.removed_to < excluded.removed_to`,
		tenant, id.Owner, id.Name, build, categories, positions)
	return err
}

// Losses returns what a tenant's documents of a build lack, by category: at most domain.GapCategories, those with the
// highest positions.
func (s *Registry) Losses(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64) ([]domain.Loss, error) {
	found, err := pg.SelectUnder(ctx, s.db.App, tenant, "read a build's losses", pgx.RowToStructByPos[domain.Loss], `
		select b.category, b.removed_to from build_losses b
		where b.tenant_id = $1 and b.owner = $2 and b.name = $3 and b.build = $4 order by b.removed_to desc limit $5`,
		tenant, id.Owner, id.Name, build, domain.GapCategories)
	if err != nil {
		return nil, err
	}
	return domain.MergeLosses(nil, found), nil
}

// deleteLosses removes a build's losses for all tenants, tenant by tenant.
func (s *Registry) deleteLosses(ctx context.Context, build domain.Build) error {
	tenants, err := pg.Select(ctx, s.db.System, "list the tenants that lack events in a build", pgx.RowTo[domain.TenantID], `
		select distinct b.tenant_id from build_losses b
		where b.owner = $1 and b.name = $2 and b.build = $3 and ($4 or b.tenant_id = $1)`, build.Owner, build.Name, build.Number, build.Shared())
	if err != nil {
		return err
	}
	for _, tenant := range tenants {
		_, err := pg.ExecUnder(ctx, s.db.App, tenant, "remove a build's losses",
			"delete from build_losses b where b.tenant_id = $1 and b.owner = $2 and b.name = $3 and b.build = $4",
			tenant, build.Owner, build.Name, build.Number)
		if err != nil {
			return err
		}
	}
	return nil
}
