package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// retire puts a build that is no longer read on the list of builds to drop.
func retire(ctx context.Context, tx pgx.Tx, build domain.Build, dropAt time.Time) error {
	_, err := pg.Exec(ctx, tx, "retire a build", `
		insert into retired_builds (tenant_id, name, build, database, drop_at) values ($1, $2, $3, $4, $5)
		on conflict (tenant_id, name, build) do nothing`,
		build.Owner, build.Name, build.Number, build.Database, dropAt)
	return err
}

// RetiredBuilds returns the builds of all owners that may be dropped at before, the longest overdue first, without
// their indexes. It leaves out builds without a date, which are live for some tenants.
func (s *Registry) RetiredBuilds(ctx context.Context, before time.Time) ([]domain.RetiredBuild, error) {
	return pg.Select(ctx, s.db.System, "list the retired builds", func(row pgx.CollectableRow) (build domain.RetiredBuild, err error) {
		return build, row.Scan(&build.Owner, &build.Name, &build.Number, &build.Database, (*pg.Moment)(&build.DropAt))
	}, `
		select b.tenant_id, b.name, b.build, b.database, b.drop_at from retired_builds b
		where b.drop_at <= $1 order by b.drop_at`, before)
}

// announcedFor is how long an announced build may wait for its projection.
const announcedFor = time.Hour

// AnnounceBuild says that the table of a build is about to be created, for a projection that is created or reset. It
// puts the build on the list of builds to drop; CreateProjection and ResetProjection take it off again. So the table is
// found and dropped even if its creator dies in between.
func (s *Registry) AnnounceBuild(ctx context.Context, build domain.Build) error {
	return pg.Under(ctx, s.db.App, build.Owner, func(tx pgx.Tx) error { return retire(ctx, tx, build, time.Now().Add(announcedFor)) })
}

// removeAnnounced takes a build that goes live off the list. A build that was not announced is no error. It returns an
// error if the build is already being dropped.
func removeAnnounced(ctx context.Context, tx pgx.Tx, id domain.ProjectionID, build int64) error {
	var dropping bool
	err := tx.QueryRow(ctx, "delete from retired_builds d where d.tenant_id = $1 and d.name = $2 and d.build = $3 returning d.dropping",
		id.Owner, id.Name, build).Scan(&dropping)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("take build %d: %w", build, err)
	case dropping:
		return domain.Errorf(domain.CodeUnavailable, "", "creating projection %q took so long that its table is being dropped; try again", id.Name)
	}
	return nil
}

// retireUndated keeps a build that is live only for some tenants on the list of builds to drop, without a date.
func retireUndated(ctx context.Context, tx pgx.Tx, build domain.Build) error {
	_, err := pg.Exec(ctx, tx, "keep a build", `
		insert into retired_builds as d (tenant_id, name, build, database, drop_at) values ($1, $2, $3, $4, 'infinity')
		on conflict (tenant_id, name, build) do update set drop_at = 'infinity' where not d.dropping`,
		build.Owner, build.Name, build.Number, build.Database)
	return err
}

// scheduleDrop gives a build without a date a date, unless a running rebuild uses it.
func (s *Registry) scheduleDrop(ctx context.Context, build domain.Build, dropAt time.Time) error {
	return pg.Under(ctx, s.db.App, build.Owner, func(tx pgx.Tx) error {
		if _, err := lockProjection(ctx, tx, build.ProjectionID); err != nil && !domain.IsCode(err, domain.CodeNotFound) {
			return err
		}
		_, err := pg.Exec(ctx, tx, "retire a build", `
			update retired_builds d set drop_at = $4
			where d.tenant_id = $1 and d.name = $2 and d.build = $3 and d.drop_at = 'infinity'
			  and not exists (select from rebuilds r where r.tenant_id = $1 and r.name = $2 and r.build = $3 and `+running+")",
			build.Owner, build.Name, build.Number, dropAt)
		return err
	})
}

// MarkDropping marks a retired build as being dropped and reports whether it may be dropped. After that, no rollback
// can return to it. It must not be dropped if it was taken off the list, got a later date, or is still live for a
// tenant. MarkDropping may be repeated and called by several processes.
func (s *Registry) MarkDropping(ctx context.Context, build domain.Build) (bool, error) {
	mark := func(set string) (marked bool, err error) {
		changed, err := pg.ExecUnder(ctx, s.db.App, build.Owner, "mark a retired build", "update retired_builds d set "+set+`
			where d.tenant_id = $1 and d.name = $2 and d.build = $3 and d.drop_at <= now()`, build.Owner, build.Name, build.Number)
		return changed > 0, err
	}
	marked, err := mark("dropping = true")
	if err != nil || !marked {
		return false, err
	}
	// The check comes after the mark: no tenant can move to a build that is being dropped, so the result cannot change
	// afterwards.
	named, err := s.isNamed(ctx, build)
	if err == nil && named {
		_, err = mark("dropping = false, drop_at = 'infinity'")
	}
	return err == nil && !named, err
}

// isNamed reports whether any tenant's row names the build.
func (s *Registry) isNamed(ctx context.Context, build domain.Build) (named bool, err error) {
	err = s.db.System.QueryRow(ctx, "select exists (select 1 from tenant_builds b where b.owner = $1 and b.name = $2 and b.build = $3)",
		build.Owner, build.Name, build.Number).Scan(&named)
	if err != nil {
		return false, pg.Unavailable(fmt.Errorf("look for tenants that have build %d: %w", build.Number, err))
	}
	return named, nil
}

// ForgetBuild takes a build off the list of retired builds after its documents were dropped. It also removes the
// build's faults, parked documents and losses. It may be repeated.
func (s *Registry) ForgetBuild(ctx context.Context, build domain.Build) error {
	if err := s.DeleteFaults(ctx, build.ProjectionID, build.Number); err != nil {
		return err
	}
	if err := s.DeleteParked(ctx, build.ProjectionID, build.Number); err != nil {
		return err
	}
	if err := s.deleteLosses(ctx, build); err != nil {
		return err
	}
	_, err := pg.ExecUnder(ctx, s.db.App, build.Owner, "forget a build",
		"delete from retired_builds b where b.tenant_id = $1 and b.name = $2 and b.build = $3", build.Owner, build.Name, build.Number)
	return err
}

// Builds returns every build of an owner that may hold documents: live builds, those of running rebuilds, and retired
// ones. They come without their indexes and in no order.
func (s *Registry) Builds(ctx context.Context, owner domain.TenantID) ([]domain.Build, error) {
	return pg.SelectUnder(ctx, s.db.App, owner, "list the builds", func(row pgx.CollectableRow) (domain.Build, error) {
		build := domain.Build{ProjectionID: domain.ProjectionID{Owner: owner}}
		return build, row.Scan(&build.Name, &build.Number, &build.Database)
	}, `
		select p.name, p.build, coalesce(p.definition->>'database', '') from projections p where p.tenant_id = $1
		union
		select r.name, r.build, coalesce(r.definition->>'database', '') from rebuilds r where r.tenant_id = $1 and `+running+`
		union
		select b.name, b.build, b.database from retired_builds b where b.tenant_id = $1`, owner)
}
