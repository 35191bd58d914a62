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

// swappable is the condition under which a rebuild may touch the live build: it is validating or awaiting approval, has
// no cancellation request, and has a worker.
const swappable = "r.state in ('validating', 'awaiting-approval') and not r.cancel and r.worker is not null"

// HoldProjection holds the live build: from now on, readings of the projection's log (domain.Reading) say
// so. The rebuild must be validating or awaiting approval, without a cancellation request, and its Worker must be the
// current one. Otherwise the error is domain.CodeConflict. It may be repeated.
func (s *Registry) HoldProjection(ctx context.Context, rebuild domain.Rebuild) error {
	return s.changeProjection(ctx, rebuild.ProjectionID, func(tx pgx.Tx) error {
		if _, err := lockProjection(ctx, tx, rebuild.ProjectionID); err != nil {
			return err
		}
		if err := lockRebuild(ctx, tx, rebuild, swappable); err != nil {
			return err
		}
		held, err := pg.Exec(ctx, tx, "hold a projection", `
			update projections p set held_by = $3, revision = p.revision + 1, updated_at = now()
			where p.tenant_id = $1 and p.name = $2 and (p.held_by is null or p.held_by = $3)`,
			rebuild.Owner, rebuild.Name, rebuild.ID)
		if err == nil && held == 0 {
			err = notHeld(rebuild)
		}
		return err
	})
}

// ReleaseProjection lets the live build continue after HoldProjection, without a swap. The rebuild's Worker must be the
// current one; otherwise the error is domain.CodeConflict. It does not change a projection that the rebuild does not
// hold.
func (s *Registry) ReleaseProjection(ctx context.Context, rebuild domain.Rebuild) error {
	return s.changeProjection(ctx, rebuild.ProjectionID, func(tx pgx.Tx) error {
		if _, err := lockProjection(ctx, tx, rebuild.ProjectionID); err != nil {
			return err
		}
		if err := lockRebuild(ctx, tx, rebuild, running); err != nil {
			return err
		}
		return releaseHold(ctx, tx, rebuild)
	})
}

// releaseHold removes a rebuild's hold from the projection's row.
func releaseHold(ctx context.Context, tx pgx.Tx, rebuild domain.Rebuild) error {
	_, err := pg.Exec(ctx, tx, "release a projection", `
		update projections p set held_by = null, revision = p.revision + 1, updated_at = now()
		where p.tenant_id = $1 and p.name = $2 and p.held_by = $3`, rebuild.Owner, rebuild.Name, rebuild.ID)
	return err
}

// SwapProjection is the commit point of a rebuild for all tenants. In one transaction, the projection gets the new
// build and definition, and the definition is stored as a version if it differs. The rebuild becomes swapped, with its
// last progress and what was live before. The old build is retired and may be dropped at dropAt. If the rebuild undoes
// another, that one becomes rolled back. The swap ends all tenants' own builds, since their base is no longer live. The
// tenants in left, in their order, are an exception: they keep their build and definition, and that build stays as long
// as one of them uses it.
//
// The rebuild must be validating or awaiting approval, have no cancellation request, have its Worker, and hold the
// projection. Otherwise nothing changes, and the error is domain.CodeConflict, or domain.CodeNotFound if the projection
// was deleted.
func (s *Registry) SwapProjection(ctx context.Context, rebuild domain.Rebuild, left []domain.TenantFault, dropAt time.Time) error {
	definition, err := json.Marshal(rebuild.Definition)
	if err != nil {
		return fmt.Errorf("write the rebuild's definition: %w", err)
	}
	return s.changeProjection(ctx, rebuild.ProjectionID, func(tx pgx.Tx) error {
		old, err := lockAndReadProjection(ctx, tx, rebuild.ProjectionID)
		if err != nil {
			return err
		}
		if old.HeldBy != rebuild.ID.String() {
			return notHeld(rebuild)
		}
		if err := s.finishSwapped(ctx, tx, rebuild, &domain.Previous{Build: old.Build, Definition: old.Definition}); err != nil {
			return err
		}
		version, err := nextVersion(ctx, tx, old, rebuild)
		if err != nil {
			return err
		}
		_, err = pg.Exec(ctx, tx, "swap a projection", `
			update projections p set build = $3, definition = $4, version = $5, held_by = null, revision = p.revision + 1, updated_at = now()
			where p.tenant_id = $1 and p.name = $2`, rebuild.Owner, rebuild.Name, rebuild.Build, definition, version)
		if err != nil {
			return err
		}
		live := old.LiveBuild()
		if err := retire(ctx, tx, live, dropAt); err != nil {
			return err
		}
		if err := leaveBehind(ctx, tx, old, rebuild, left); err != nil {
			return err
		}
		return deleteOwnFaults(ctx, tx, live)
	})
}

// leaveBehind lets tenants keep what is live for them when a swap for all moves the projection's row from old to the
// rebuild's build. It is part of the swap's transaction, so that no reader sees the new build for one of them.
// docs/decisions/0060-a-fault-stops-one-tenant.md has the argument.
func leaveBehind(ctx context.Context, tx pgx.Tx, old domain.Projection, rebuild domain.Rebuild, left []domain.TenantFault) error {
	if len(left) == 0 {
		return nil
	}
	definition, err := json.Marshal(old.Definition)
	if err != nil {
		return fmt.Errorf("write the definition from before: %w", err)
	}
	kept := make(map[int64]string) // builds and their databases
	var build int64
	var database string
	var batch pgx.Batch
	for _, fault := range left {
		batch.Queue("set local manifold.tenant = '" + fault.Tenant.String() + "'")
		// A tenant whose appends already fold into the new build has been moved to it, and an erased tenant has
		// neither a log nor a build.
		batch.Queue(`
			insert into tenant_builds as b (tenant_id, owner, name, build, base, definition, pinned_to, fault, fault_position)
			select l.tenant_id, @owner, @name, @old, @new, @definition, @new, @fault, nullif(@position::bigint, 0)
			from logs l join tenants t on t.tenant_id = l.tenant_id
			where l.tenant_id = @tenant and t.state not in ('deleting', 'deleted')
			on conflict (tenant_id, owner, name) do update
			  set build = case when b.base is null or b.base = @old then b.build else excluded.build end,
			    definition = case when b.base is null or b.base = @old then coalesce(b.definition, excluded.definition) else excluded.definition end,
			    base = case when b.base is not null then excluded.base end,
			    held_by = null, pinned_to = excluded.pinned_to, fault = excluded.fault, fault_position = excluded.fault_position,
			    updated_at = excluded.updated_at
			  where b.build <> @new
			returning b.build, coalesce(b.definition->>'database', '')`,
			pgx.NamedArgs{
				"tenant": fault.Tenant, "owner": rebuild.Owner, "name": rebuild.Name, "old": old.Build, "new": rebuild.Build,
				"definition": definition, "fault": fault.Reason, "position": fault.Position,
			}).
			Query(func(rows pgx.Rows) error {
				_, err := pgx.ForEachRow(rows, []any{&build, &database}, func() error {
					kept[build] = database
					return nil
				})
				return err
			})
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("leave tenants on their builds: %w", err)
	}
	if err := actAs(ctx, tx, rebuild.Owner); err != nil {
		return err
	}
	for build, database := range kept {
		if err := retireUndated(ctx, tx, domain.Build{ProjectionID: rebuild.ProjectionID, Number: build, Database: database}); err != nil {
			return err
		}
	}
	return nil
}

// finishSwapped ends a rebuild as swapped, if a swap is allowed, and ends the rebuild that it undoes as rolled back.
// previous is nil if the row already contains it.
func (s *Registry) finishSwapped(ctx context.Context, tx pgx.Tx, rebuild domain.Rebuild, previous *domain.Previous) error {
	rebuild.State = domain.RebuildSwapped
	if err := s.finishRebuild(ctx, tx, rebuild, swappable); err != nil {
		return err
	}
	if previous != nil {
		text, err := json.Marshal(previous)
		if err != nil {
			return fmt.Errorf("write what was live before: %w", err)
		}
		_, err = pg.Exec(ctx, tx, "keep what was live before a swap",
			"update rebuilds r set previous = $4 where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3",
			rebuild.Owner, rebuild.Name, rebuild.ID, text)
		if err != nil {
			return err
		}
	}
	if rebuild.RollbackOf == (domain.RebuildID{}) {
		return nil
	}
	_, err := pg.Exec(ctx, tx, "mark a rebuild rolled back", `
		update rebuilds r set state = 'rolled-back', updated_at = now()
		where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3 and r.state = 'swapped'`,
		rebuild.Owner, rebuild.Name, rebuild.RollbackOf)
	return err
}

// nextVersion stores a rebuild's definition as the projection's next version, if it differs from the current one. It
// returns the resulting version of the projection.
func nextVersion(ctx context.Context, tx pgx.Tx, old domain.Projection, rebuild domain.Rebuild) (int64, error) {
	same, err := sameJSON(old.Definition, rebuild.Definition)
	if err != nil || same {
		return old.Version, err
	}
	cause := domain.VersionChanged
	if rebuild.RollbackOf != (domain.RebuildID{}) {
		cause = domain.VersionRolledBack
	}
	return insertVersion(ctx, tx, domain.ProjectionVersion{
		ProjectionID: rebuild.ProjectionID, Definition: rebuild.Definition, Cause: cause, By: rebuild.By, Rebuild: rebuild.ID,
	})
}

// sameJSON reports whether two definitions from the database are stored identically.
func sameJSON(a, b domain.Definition) (bool, error) {
	left, err := json.Marshal(a)
	if err != nil {
		return false, fmt.Errorf("write a definition: %w", err)
	}
	right, err := json.Marshal(b)
	if err != nil {
		return false, fmt.Errorf("write a definition: %w", err)
	}
	return string(left) == string(right), nil
}

// ChangeDefinition replaces a definition at once, without a rebuild, and stores it as a version made by by. It is for
// changes that do not affect documents. It returns the resulting projection. The errors are domain.CodeNotFound if
// there is no projection, domain.CodeRebuildRunning while a rebuild of it is running, and domain.CodeConflict if its
// definition is no longer before.
func (s *Registry) ChangeDefinition(ctx context.Context, id domain.ProjectionID, before, definition domain.Definition, by string) (domain.Projection, error) {
	text, err := json.Marshal(definition)
	if err != nil {
		return domain.Projection{}, fmt.Errorf("write the definition: %w", err)
	}
	err = s.changeProjection(ctx, id, func(tx pgx.Tx) error {
		old, err := lockAndReadProjection(ctx, tx, id)
		if err != nil {
			return err
		}
		if same, err := sameJSON(old.Definition, before); err != nil || !same {
			if err == nil {
				err = definitionChanged(id)
			}
			return err
		}
		if err := requireNoRebuild(ctx, tx, id); err != nil {
			return err
		}
		version, err := insertVersion(ctx, tx, domain.ProjectionVersion{ProjectionID: id, Definition: definition, Cause: domain.VersionChanged, By: by})
		if err != nil {
			return err
		}
		_, err = pg.Exec(ctx, tx, "change the definition of a projection", `
			update projections p set definition = $3, version = $4, revision = p.revision + 1, updated_at = now()
			where p.tenant_id = $1 and p.name = $2`, id.Owner, id.Name, text, version)
		if err != nil {
			return err
		}
		return requireNoCycle(ctx, tx, id, definition)
	})
	if err != nil {
		return domain.Projection{}, err
	}
	return s.Projection(ctx, id)
}

// requireNoRebuild returns domain.CodeRebuildRunning while a rebuild of the projection is running.
func requireNoRebuild(ctx context.Context, tx pgx.Tx, id domain.ProjectionID) error {
	var busy bool
	err := tx.QueryRow(ctx, "select exists (select from rebuilds r where r.tenant_id = $1 and r.name = $2 and "+running+")", id.Owner, id.Name).Scan(&busy)
	switch {
	case err != nil:
		return fmt.Errorf("look for a rebuild of the projection: %w", err)
	case busy:
		return rebuildRunning(id)
	}
	return nil
}

// lockAndReadProjection locks a projection's row and returns the projection, or domain.CodeNotFound if there is none.
func lockAndReadProjection(ctx context.Context, tx pgx.Tx, id domain.ProjectionID) (domain.Projection, error) {
	p, ok, err := pg.SelectOne(ctx, tx, "lock a projection", scanProjection,
		"select "+projectionColumns+" from projections p where p.tenant_id = $1 and p.name = $2 for update", id.Owner, id.Name)
	if err == nil && !ok {
		err = noProjection(id)
	}
	return p, err
}

// lockRebuild locks a rebuild's row if it still has the same worker and the condition holds.
func lockRebuild(ctx context.Context, tx pgx.Tx, rebuild domain.Rebuild, condition string) error {
	_, ok, err := pg.SelectOne(ctx, tx, "lock a rebuild", pgx.RowTo[int64], `
		select r.build from rebuilds r
		where r.tenant_id = $1 and r.name = $2 and r.rebuild_id = $3 and r.worker = $4 and `+condition+" for update",
		rebuild.Owner, rebuild.Name, rebuild.ID, pg.TextOrNull(rebuild.Worker))
	if err == nil && !ok {
		err = notOwned(rebuild)
	}
	return err
}

func definitionChanged(id domain.ProjectionID) error {
	return domain.Errorf(domain.CodeConflict, "", "the definition of projection %q has just been changed by someone else; read it, and try again", id.Name)
}

func notHeld(rebuild domain.Rebuild) error {
	return domain.Errorf(domain.CodeConflict, "", "rebuild %s does not hold projection %q", rebuild.ID, rebuild.Name)
}
