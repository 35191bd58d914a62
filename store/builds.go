package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
)

// retire keeps a build, which nobody reads any more, on the list of those to drop.
func retire(ctx context.Context, tx pgx.Tx, build domain.Build, dropAt time.Time) error {
	_, err := tx.Exec(ctx, `
		insert into retired_builds (tenant_id, name, build, database, drop_at) values ($1, $2, $3, $4, $5)
		on conflict (tenant_id, name, build) do nothing`,
		build.Owner, build.Name, build.Number, build.Database, dropAt)
	if err != nil {
		return fmt.Errorf("retire build %d: %w", build.Number, err)
	}
	return nil
}

// RetiredBuilds returns the builds of all owners that may be dropped at before, the longest overdue first, without their
// indexes.
func (s *Store) RetiredBuilds(ctx context.Context, before time.Time) ([]domain.RetiredBuild, error) {
	rows, _ := s.system.Query(ctx, `
		select b.tenant_id, b.name, b.build, b.database, b.drop_at from retired_builds b
		where b.drop_at <= $1 order by b.drop_at`, before)
	builds, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (domain.RetiredBuild, error) {
		var build domain.RetiredBuild
		return build, row.Scan(&build.Owner, &build.Name, &build.Number, &build.Database, (*moment)(&build.DropAt))
	})
	if err != nil {
		return nil, unavailable(fmt.Errorf("list the retired builds: %w", err))
	}
	return builds, nil
}

// ForgetBuild takes a build off the list of retired ones, after its documents were dropped, and removes what is left of
// its faults. It may be repeated.
func (s *Store) ForgetBuild(ctx context.Context, build domain.Build) error {
	if err := s.DeleteFaults(ctx, build.ProjectionID, build.Number); err != nil {
		return err
	}
	return under(ctx, s.app, build.Owner, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "delete from retired_builds b where b.tenant_id = $1 and b.name = $2 and b.build = $3",
			build.Owner, build.Name, build.Number)
		if err != nil {
			return fmt.Errorf("forget build %d: %w", build.Number, err)
		}
		return nil
	})
}

// Builds returns every build of an owner that may hold documents: the live ones, those of rebuilds under way, and the
// retired ones; without their indexes, in no order.
func (s *Store) Builds(ctx context.Context, owner domain.TenantID) ([]domain.Build, error) {
	var builds []domain.Build
	err := under(ctx, s.app, owner, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `
			select p.name, p.build, coalesce(p.definition->>'database', '') from projections p where p.tenant_id = $1
			union
			select r.name, r.build, coalesce(r.definition->>'database', '') from rebuilds r where r.tenant_id = $1 and `+running+`
			union
			select b.name, b.build, b.database from retired_builds b where b.tenant_id = $1`, owner)
		var err error
		builds, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (domain.Build, error) {
			build := domain.Build{ProjectionID: domain.ProjectionID{Owner: owner}}
			return build, row.Scan(&build.Name, &build.Number, &build.Database)
		})
		if err != nil {
			return fmt.Errorf("list the builds: %w", err)
		}
		return nil
	})
	return builds, err
}
