package registry

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// CreateRollback queues the rebuild that undoes another one by continuing with the build that was live before it. It
// takes Build and Definition from there and returns the rebuild. The same transaction takes the build off the list of
// retired ones, so that nobody drops it meanwhile. In a rollback for some tenants, the build stays on the list but
// loses its date.
//
// It returns domain.CodeConflict if undone is not swapped, if another build has gone live since, or if the old build is
// no longer kept. It returns domain.CodeNotFound if there is no such rebuild or projection, and
// domain.CodeRebuildRunning if the projection has a rebuild that has not ended.
func (s *Registry) CreateRollback(ctx context.Context, undone domain.RebuildID, rebuild domain.Rebuild) (domain.Rebuild, error) {
	err := s.changeProjection(ctx, rebuild.ProjectionID, func(tx pgx.Tx) error {
		live, err := lockAndReadProjection(ctx, tx, rebuild.ProjectionID)
		if err != nil {
			return err
		}
		old, ok, err := pg.SelectOne(ctx, tx, "lock a rebuild", scanRebuild,
			"select "+rebuildColumns+" from rebuilds r where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3 for update",
			rebuild.Owner, rebuild.Name, undone)
		switch {
		case err != nil:
			return err
		case !ok:
			return noRebuild(rebuild.ProjectionID, undone)
		case old.State != domain.RebuildSwapped || old.Previous == nil:
			return domain.Errorf(domain.CodeConflict, "", "rebuild %s cannot be rolled back: it is %s", undone, old.State)
		}
		if err := requireNoRebuild(ctx, tx, rebuild.ProjectionID); err != nil {
			return err
		}
		rebuild.RollbackOf, rebuild.Build, rebuild.Definition = undone, old.Previous.Build, old.Previous.Definition
		rebuild.Tenants = old.Tenants
		if len(old.Tenants) > 0 {
			err = restorePreviousForTenants(ctx, tx, live, old, &rebuild)
		} else {
			err = restorePrevious(ctx, tx, live, old)
		}
		if err != nil {
			return err
		}
		return insertRebuild(ctx, tx, rebuild)
	})
	if err != nil {
		return domain.Rebuild{}, err
	}
	return s.Rebuild(ctx, rebuild.ProjectionID, rebuild.ID)
}

// restorePrevious takes the build that was live before a swap for all tenants off the list of retired ones.
func restorePrevious(ctx context.Context, tx pgx.Tx, live domain.Projection, old domain.Rebuild) error {
	if live.Build != old.Build {
		return superseded(old)
	}
	restored, err := pg.Exec(ctx, tx, "restore a retired build",
		"delete from retired_builds d where d.tenant_id = $1 and d.name = $2 and d.build = $3 and not d.dropping",
		old.Owner, old.Name, old.Previous.Build)
	if err == nil && restored == 0 {
		err = previousDropped(old)
	}
	return err
}

// restorePreviousForTenants keeps the build that was live for some tenants before a swap. These tenants must still have
// the build that was swapped in.
func restorePreviousForTenants(ctx context.Context, tx pgx.Tx, live domain.Projection, old domain.Rebuild, rebuild *domain.Rebuild) error {
	if old.Previous.Build == 0 {
		return domain.Errorf(domain.CodeConflict, "", "rebuild %s cannot be rolled back: its tenants came from different builds; rebuild them instead", old.ID)
	}
	if old.Previous.Build == live.Build {
		rebuild.Definition = live.Definition
	}
	rebuild.Tenants = nil
	for _, tenant := range old.Tenants {
		if err := actAs(ctx, tx, tenant); err != nil {
			return err
		}
		var there bool
		err := tx.QueryRow(ctx, `
			select exists (select from tenant_builds b where b.tenant_id = $1 and b.owner = $2 and b.name = $3 and b.build = $4 and b.base = $5)`,
			tenant, old.Owner, old.Name, old.Build, live.Build).Scan(&there)
		if err != nil {
			return fmt.Errorf("look up a tenant's build: %w", err)
		}
		switch {
		case there:
			rebuild.Tenants = append(rebuild.Tenants, tenant)
		case old.Faulted == nil: // otherwise the tenant may have been left on its old build
			return superseded(old)
		}
	}
	if len(rebuild.Tenants) == 0 {
		return superseded(old)
	}
	if err := actAs(ctx, tx, old.Owner); err != nil {
		return err
	}
	if old.Previous.Build == live.Build {
		return nil // it serves all other tenants
	}
	restored, err := pg.Exec(ctx, tx, "restore a retired build", `
		update retired_builds d set drop_at = 'infinity'
		where d.tenant_id = $1 and d.name = $2 and d.build = $3 and not d.dropping`, old.Owner, old.Name, old.Previous.Build)
	if err == nil && restored == 0 {
		err = previousDropped(old)
	}
	return err
}

func superseded(old domain.Rebuild) error {
	return domain.Errorf(domain.CodeConflict, "", "rebuild %s cannot be rolled back: another build has gone live since", old.ID)
}

func previousDropped(old domain.Rebuild) error {
	return domain.Errorf(domain.CodeConflict, "", "rebuild %s cannot be rolled back: the previous documents have been dropped", old.ID)
}
