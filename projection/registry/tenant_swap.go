package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// A rebuild for some tenants of a shared projection gives each of them a separate build in tenant_builds. Each step is
// one transaction: it locks the rows of the projection and the rebuild under their owner, and then changes the tenant's
// row under the tenant.
//
// From the first swap on, builds of single tenants are on the list of retired builds, without a date. So every build
// with documents is in one list or the other. A build gets its date when tenants' rows no longer name it.

// HoldTenant holds the build that is live for a tenant, as HoldProjection does for all. It returns
// domain.CodeConflict unless the rebuild may swap and its Worker is the current one. It may be repeated.
func (s *Registry) HoldTenant(ctx context.Context, tenant domain.TenantID, rebuild domain.Rebuild) error {
	return s.changeProjection(ctx, rebuild.ProjectionID, func(tx pgx.Tx) error {
		live, err := lockForTenants(ctx, tx, rebuild)
		if err != nil {
			return err
		}
		var definition []byte // as stored: PostgreSQL compares it
		err = tx.QueryRow(ctx, "select p.definition from projections p where p.tenant_id = $1 and p.name = $2", rebuild.Owner, rebuild.Name).Scan(&definition)
		if err != nil {
			return fmt.Errorf("read a projection's definition: %w", err)
		}
		if err := actAs(ctx, tx, tenant); err != nil {
			return err
		}
		held, err := pg.Exec(ctx, tx, "hold a tenant's build", `
			insert into tenant_builds as b (tenant_id, owner, name, build, base, held_by) values ($1, $2, $3, $4, $4, $5)
			on conflict (tenant_id, owner, name) do update
			  set build = case when b.base = excluded.base then b.build else excluded.build end, base = excluded.base,
			    definition = case when b.base = excluded.base and b.pinned_to = excluded.base then b.definition end,
			    pinned_to = case when b.base = excluded.base then b.pinned_to end, fault = case when b.base = excluded.base then b.fault end,
			    held_by = excluded.held_by, updated_at = excluded.updated_at
			  where b.base is not null and (b.held_by is null or b.held_by = excluded.held_by or b.base <> excluded.base)
			    and (b.definition is null or b.base <> excluded.base or b.pinned_to = excluded.base or b.definition = $6)`,
			tenant, rebuild.Owner, rebuild.Name, live.Build, rebuild.ID, definition)
		if err == nil && held == 0 {
			err = notHeld(rebuild)
		}
		return err
	})
}

// ReleaseTenant lets the build that is live for a tenant continue after HoldTenant, without a swap. The rebuild's
// Worker must be the current one; otherwise the error is domain.CodeConflict. It does not change a build that the
// rebuild does not hold. SettleTenantBuilds releases the holds of ended rebuilds.
func (s *Registry) ReleaseTenant(ctx context.Context, tenant domain.TenantID, rebuild domain.Rebuild) error {
	return s.changeProjection(ctx, rebuild.ProjectionID, func(tx pgx.Tx) error {
		if _, err := lockProjection(ctx, tx, rebuild.ProjectionID); err != nil && !domain.IsCode(err, domain.CodeNotFound) {
			return err
		}
		if err := lockRebuild(ctx, tx, rebuild, running); err != nil {
			return err
		}
		if err := actAs(ctx, tx, tenant); err != nil {
			return err
		}
		return releaseTenantHold(ctx, tx, tenant, rebuild.ProjectionID, rebuild.ID)
	})
}

// releaseTenantHold removes a rebuild's hold from a tenant's row. It deletes a row that was created only for the hold.
func releaseTenantHold(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, id domain.ProjectionID, rebuild domain.RebuildID) error {
	_, err := tx.Exec(ctx, `
		delete from tenant_builds b where b.tenant_id = $1 and b.owner = $2 and b.name = $3 and b.held_by = $4 and b.build = b.base`,
		tenant, id.Owner, id.Name, rebuild)
	if err == nil {
		_, err = tx.Exec(ctx, `
			update tenant_builds b set held_by = null, updated_at = now()
			where b.tenant_id = $1 and b.owner = $2 and b.name = $3 and b.held_by = $4`,
			tenant, id.Owner, id.Name, rebuild)
	}
	if err != nil {
		return fmt.Errorf("release a tenant's build: %w", err)
	}
	return nil
}

// SwapTenant makes the rebuild's build live for a tenant, as long as the projection's own live build stays the same. It
// is the commit point, for each tenant, of a rebuild for some tenants. If the rebuild's definition differs from the
// projection's, the tenant gets it together with the build. The rebuild must be allowed to swap, have its Worker, and
// hold the tenant's build, whose base is live. Otherwise nothing changes, and the error is domain.CodeConflict.
func (s *Registry) SwapTenant(ctx context.Context, tenant domain.TenantID, rebuild domain.Rebuild) error {
	return s.changeProjection(ctx, rebuild.ProjectionID, func(tx pgx.Tx) error {
		live, err := lockForTenants(ctx, tx, rebuild)
		if err != nil {
			return err
		}
		if err := actAs(ctx, tx, tenant); err != nil {
			return err
		}
		same, err := sameJSON(live.Definition, rebuild.Definition)
		if err != nil {
			return err
		}
		var definition []byte // nil: the projection's
		var pinned *int64
		if !same {
			if definition, err = json.Marshal(rebuild.Definition); err != nil {
				return fmt.Errorf("write the rebuild's definition: %w", err)
			}
			pinned = &live.Build
		}
		was, err := lockHeldBuild(ctx, tx, tenant, live, rebuild)
		if err != nil {
			return err
		}
		_, err = pg.Exec(ctx, tx, "swap a tenant's build", `
			update tenant_builds b set build = $4, definition = $5, pinned_to = $6, fault = null, held_by = null, updated_at = now()
			where b.tenant_id = $1 and b.owner = $2 and b.name = $3`,
			tenant, rebuild.Owner, rebuild.Name, rebuild.Build, definition, pinned)
		if err != nil {
			return err
		}
		if err := actAs(ctx, tx, rebuild.Owner); err != nil {
			return err
		}
		if rebuild.Build != live.Build {
			if err := retireUndated(ctx, tx, rebuild.NewBuild()); err != nil {
				return err
			}
		}
		previous, err := json.Marshal(was)
		if err != nil {
			return fmt.Errorf("write what was live before: %w", err)
		}
		// Tenants that come from different builds cannot be rolled back by one rebuild.
		_, err = pg.Exec(ctx, tx, "keep what was live before a swap", `
			update rebuilds r set previous = case
			    when r.previous is null or (r.previous->>'build')::bigint = $4 then $5::jsonb else r.previous || '{"build": 0}' end
			where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3`, rebuild.Owner, rebuild.Name, rebuild.ID, was.Build, previous)
		return err
	})
}

// lockHeldBuild locks the row of the tenant's build that the rebuild holds, and returns what is live for the tenant.
func lockHeldBuild(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, live domain.Projection, rebuild domain.Rebuild) (domain.Previous, error) {
	held, ok, err := pg.SelectOne(ctx, tx, "lock a tenant's build", func(row pgx.CollectableRow) (domain.Previous, error) {
		was := domain.Previous{Definition: live.Definition}
		var own []byte
		if err := row.Scan(&was.Build, &own); err != nil || own == nil {
			return was, err
		}
		was.Definition = domain.Definition{}
		return was, pg.DecodeStrictly(own, &was.Definition)
	}, `
		select b.build, b.definition from tenant_builds b
		where b.tenant_id = $1 and b.owner = $2 and b.name = $3 and b.held_by = $4 and b.base = $5 for update`,
		tenant, rebuild.Owner, rebuild.Name, rebuild.ID, live.Build)
	if err == nil && !ok {
		err = notHeld(rebuild)
	}
	return held, err
}

// FinishTenants ends a rebuild for some tenants as swapped, after SwapTenant for each, under the same conditions.
func (s *Registry) FinishTenants(ctx context.Context, rebuild domain.Rebuild) error {
	return s.changeProjection(ctx, rebuild.ProjectionID, func(tx pgx.Tx) error {
		if _, err := lockProjection(ctx, tx, rebuild.ProjectionID); err != nil {
			return err
		}
		return s.finishSwapped(ctx, tx, rebuild, nil)
	})
}

// lockForTenants locks the rows of the projection and the rebuild for a step of one tenant.
func lockForTenants(ctx context.Context, tx pgx.Tx, rebuild domain.Rebuild) (domain.Projection, error) {
	live, err := lockAndReadProjection(ctx, tx, rebuild.ProjectionID)
	if err != nil {
		return live, err
	}
	return live, lockRebuild(ctx, tx, rebuild, swappable)
}

// actAs sets another tenant in a transaction.
func actAs(ctx context.Context, tx pgx.Tx, tenant domain.TenantID) error {
	// SET takes no parameters. The tenant's canonical form contains only hexadecimal digits and dashes.
	if _, err := tx.Exec(ctx, "set local manifold.tenant = '"+tenant.String()+"'"); err != nil {
		return fmt.Errorf("act for another tenant: %w", err)
	}
	return nil
}

// TenantBuildsOf returns the rows of all tenants with a separate build of a projection, in force or not, ordered by
// tenant.
func (s *Registry) TenantBuildsOf(ctx context.Context, id domain.ProjectionID) ([]domain.TenantBuild, error) {
	return pg.Select(ctx, s.db.System, "list the tenants' builds of a projection", scanTenantBuild, "select "+tenantBuildColumns+`
		from tenant_builds b where b.owner = $1 and b.name = $2 order by b.tenant_id`, id.Owner, id.Name)
}

// SettleTenantBuilds cleans up after swaps. It removes tenants' rows whose base is no longer live or whose projection
// is gone. It removes the holds of ended rebuilds. And it sets a date for dropping the builds that tenants' rows
// no longer name. It may be repeated, and several processes may run it at once.
func (s *Registry) SettleTenantBuilds(ctx context.Context, dropAt time.Time) error {
	ended, err := pg.Select(ctx, s.db.System, "list the tenants' builds that have ended", scanTenantBuild, "select "+tenantBuildColumns+`
		from tenant_builds b left join projections p on p.tenant_id = b.owner and p.name = b.name
		where b.base is not null and (b.base <> -1 or b.updated_at < now() - interval '1 minute')
		  and (p.build is null or p.build <> b.base or b.held_by is not null and not exists (
		  select from rebuilds r where r.tenant_id = b.owner and r.name = b.name and r.rebuild_id = b.held_by and `+running+"))")
	if err != nil {
		return err
	}
	for _, b := range ended {
		if err := s.settleTenantBuild(ctx, b); err != nil {
			return err
		}
	}
	undated, err := pg.Select(ctx, s.db.System, "list the retired builds without a date", func(row pgx.CollectableRow) (build domain.Build, err error) {
		return build, row.Scan(&build.Owner, &build.Name, &build.Number, &build.Database)
	}, `
		select d.tenant_id, d.name, d.build, d.database from retired_builds d
		where d.drop_at = 'infinity'
		  and not exists (select from rebuilds r where r.tenant_id = d.tenant_id and r.name = d.name and r.build = d.build and `+running+")")
	if err != nil {
		return err
	}
	for _, build := range undated {
		named, err := s.isNamed(ctx, build)
		if err == nil && !named {
			err = s.scheduleDrop(ctx, build, dropAt)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settleTenantBuild removes a tenant's row that is not in force, or removes an ended rebuild's hold from it.
func (s *Registry) settleTenantBuild(ctx context.Context, b domain.TenantBuild) error {
	return s.changeProjection(ctx, b.ProjectionID, func(tx pgx.Tx) error {
		live, err := lockProjection(ctx, tx, b.ProjectionID)
		if err != nil && !domain.IsCode(err, domain.CodeNotFound) {
			return err
		}
		var held domain.RebuildID
		ended := false
		if b.HeldBy != "" {
			if held, err = domain.ParseRebuildID(b.HeldBy); err != nil {
				return fmt.Errorf("read who holds a tenant's build: %w", err)
			}
			err = tx.QueryRow(ctx, "select not exists (select from rebuilds r where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3 and "+running+")",
				b.Owner, b.Name, held).Scan(&ended)
			if err != nil {
				return fmt.Errorf("look for the rebuild that holds a tenant's build: %w", err)
			}
		}
		if err := actAs(ctx, tx, b.Tenant); err != nil {
			return err
		}
		_, err = pg.Exec(ctx, tx, "remove a tenant's build that is no longer in force",
			"delete from tenant_builds b where b.tenant_id = $1 and b.owner = $2 and b.name = $3 and b.base is not null and b.base <> $4",
			b.Tenant, b.Owner, b.Name, live.Number)
		if err != nil {
			return err
		}
		if ended {
			return releaseTenantHold(ctx, tx, b.Tenant, b.ProjectionID, held)
		}
		return nil
	})
}
