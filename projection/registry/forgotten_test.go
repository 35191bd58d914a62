package registry_test

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/projection/registry"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// A projection that is changed and rebuilt repeatedly keeps only the newest versions and rebuilds.
func TestOldVersionsAndRebuildsAreForgotten(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	id := domain.ProjectionID{Owner: tablestest.NewTenant(t, s), Name: "busy"}
	for _, statement := range []string{
		`insert into manifold.projection_versions (tenant_id, name, version, definition, cause, by) select $1, 'busy', n, '{}', 'changed', 'test' from generate_series(1, $2::int) n`,
		`insert into manifold.rebuilds (tenant_id, name, rebuild_id, build, definition, state, events_total, by, created_at, ended_at)
			select $1, 'busy', gen_random_uuid(), n, '{}', 'swapped', 0, 'test', now() - interval '1 day' + n * interval '1 second', now() from generate_series(1, $2::int) n`,
	} {
		if _, err := super.Exec(t.Context(), statement, id.Owner, registry.MaxVersions+50); err != nil {
			t.Fatal(err)
		}
	}
	definition := domain.Definition{Name: id.Name}
	tablestest.Must(t, s.CreateProjection(t.Context(), domain.Projection{ProjectionID: id, Definition: definition, Build: 5000}, "test"))
	tablestest.Must(t, s.CreateRebuild(t.Context(), domain.Rebuild{ProjectionID: id, ID: domain.NewRebuildID(), Build: 5001, Definition: definition}))
	var versions, rebuilds, oldest int
	tablestest.Must(t, super.QueryRow(t.Context(), `
		select (select count(*) from manifold.projection_versions where tenant_id = $1), count(*), min(build) from manifold.rebuilds where tenant_id = $1`,
		id.Owner).Scan(&versions, &rebuilds, &oldest))
	if versions != registry.MaxVersions || rebuilds != registry.MaxRebuilds+1 || oldest != registry.MaxVersions+50-registry.MaxRebuilds+1 {
		t.Errorf("%d versions and %d rebuilds are left, from build %d on", versions, rebuilds, oldest)
	}
}

// Many failed rebuilds do not push out the swapped ones, which a rollback needs.
func TestFailedRebuildsPushOutNoSwappedOnes(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	id := domain.ProjectionID{Owner: tablestest.NewTenant(t, s), Name: "busy"}
	_, err := super.Exec(t.Context(), `
		insert into manifold.rebuilds (tenant_id, name, rebuild_id, build, definition, state, events_total, by, created_at, ended_at)
		select $1, 'busy', gen_random_uuid(), n, '{}', case when n <= 2 then 'swapped' else 'failed' end, 0, 'test', now() - interval '1 day' + n * interval '1 second', now()
		from generate_series(1, $2::int) n`, id.Owner, registry.MaxRebuilds+50)
	tablestest.Must(t, err)
	definition := domain.Definition{Name: id.Name}
	tablestest.Must(t, s.CreateProjection(t.Context(), domain.Projection{ProjectionID: id, Definition: definition, Build: 5000}, "test"))
	tablestest.Must(t, s.CreateRebuild(t.Context(), domain.Rebuild{ProjectionID: id, ID: domain.NewRebuildID(), Build: 5001, Definition: definition}))
	var swapped, failed int
	tablestest.Must(t, super.QueryRow(t.Context(), `
		select count(*) filter (where state = 'swapped'), count(*) filter (where state = 'failed') from manifold.rebuilds where tenant_id = $1`,
		id.Owner).Scan(&swapped, &failed))
	if swapped != 2 || failed != registry.MaxRebuilds {
		t.Errorf("%d rebuilds that swapped and %d that failed are left; want 2 and %d", swapped, failed, registry.MaxRebuilds)
	}
}
