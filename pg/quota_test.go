package tables_test

import (
	"fmt"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// A tenant keeps so many keys, projections and aggregates; one more is refused and leaves nothing, what is there can be
// changed, and other tenants do not notice. Groups, webhooks and retention policies have separate tests.
func TestQuotas(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	create := map[string]func(tenant domain.TenantID, n int) error{
		"keys": func(tenant domain.TenantID, n int) error {
			return s.CreateKey(t.Context(), tablestest.NewKey(tenant, fmt.Sprint("key ", n)))
		},
		"projections": func(tenant domain.TenantID, n int) error {
			id := domain.ProjectionID{Owner: tenant, Name: fmt.Sprint("p-", n)}
			return s.CreateProjection(t.Context(), domain.Projection{ProjectionID: id, Definition: domain.Definition{Name: id.Name}, Build: int64(n)}, "test")
		},
		"aggregates": func(tenant domain.TenantID, n int) error {
			return s.PutAggregate(t.Context(), tenant, domain.Aggregate{Category: fmt.Sprint("c", n)})
		},
	}
	for table, fill := range map[string]string{
		"keys":        `insert into manifold.keys (tenant_id, key_id, name, hash, scopes) select $1, gen_random_uuid(), 'k', decode(repeat('00', 32), 'hex'), '{}' from generate_series(2, $2::int) n`,
		"projections": `insert into manifold.projections (tenant_id, name, definition, build) select $1, 'made-' || n, '{}', n from generate_series(2, $2::int) n`,
		"aggregates":  `insert into manifold.aggregates (tenant_id, category, definition) select $1, 'made' || n, '{}' from generate_series(2, $2::int) n`,
	} {
		full, other := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
		most := map[string]int{"keys": domain.MaxKeys, "projections": domain.MaxProjections, "aggregates": domain.MaxAggregates}[table]
		if _, err := super.Exec(t.Context(), fill, full, most); err != nil {
			t.Fatal(err)
		}
		tablestest.Must(t, create[table](full, 1))
		tablestest.WantCode(t, create[table](full, 2), domain.CodeQuotaExceeded)
		tablestest.Must(t, create[table](other, 1))
		var there int
		tablestest.Must(t, super.QueryRow(t.Context(), "select count(*) from manifold."+table+" where tenant_id = $1", full).Scan(&there))
		if there != most {
			t.Errorf("%d %s are there; want %d", there, table, most)
		}
		if table == "aggregates" {
			tablestest.Must(t, create[table](full, 1)) // a change
		}
	}
}

// Keys that are revoked make room for others, and do not pile up.
func TestRevokedKeysAreForgotten(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	_, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), `
		insert into manifold.keys (tenant_id, key_id, name, hash, scopes, revoked_at)
		select $1, gen_random_uuid(), 'old ' || n, decode(repeat('00', 32), 'hex'), '{}', now() - n * interval '1 second' from generate_series(1, $2::int) n`,
		tenant, domain.MaxRevokedKeys)
	tablestest.Must(t, err)
	last := tablestest.NewKey(tenant, "last")
	tablestest.Must(t, s.CreateKey(t.Context(), last))
	tablestest.Must(t, s.RevokeKey(t.Context(), tenant, last.ID))
	tablestest.Must(t, s.CreateKey(t.Context(), tablestest.NewKey(tenant, "alive")))
	names := map[string]bool{}
	for after := (domain.KeyID{}); ; { // by pages
		keys, err := s.Keys(t.Context(), tenant, after, 300)
		tablestest.Must(t, err)
		for _, key := range keys {
			if names[key.Name] {
				t.Fatalf("key %q is on two pages", key.Name)
			}
			names[key.Name], after = true, key.ID
		}
		if len(keys) < 300 {
			break
		}
	}
	if len(names) != domain.MaxRevokedKeys+1 || !names["last"] || !names["alive"] || names[fmt.Sprint("old ", domain.MaxRevokedKeys)] {
		t.Errorf("%d keys are left, the one revoked first among them: %v", len(names), names[fmt.Sprint("old ", domain.MaxRevokedKeys)])
	}
}

// A projection that is changed and rebuilt over and over keeps the newest versions and rebuilds.
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
		if _, err := super.Exec(t.Context(), statement, id.Owner, domain.MaxVersions+50); err != nil {
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
	if versions != domain.MaxVersions || rebuilds != domain.MaxRebuilds+1 || oldest != domain.MaxVersions+50-domain.MaxRebuilds+1 {
		t.Errorf("%d versions and %d rebuilds are left, from build %d on", versions, rebuilds, oldest)
	}
}

// Many rebuilds that failed do not push out those that swapped, which a rollback needs.
func TestFailedRebuildsPushOutNoneThatSwapped(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	id := domain.ProjectionID{Owner: tablestest.NewTenant(t, s), Name: "busy"}
	_, err := super.Exec(t.Context(), `
		insert into manifold.rebuilds (tenant_id, name, rebuild_id, build, definition, state, events_total, by, created_at, ended_at)
		select $1, 'busy', gen_random_uuid(), n, '{}', case when n <= 2 then 'swapped' else 'failed' end, 0, 'test', now() - interval '1 day' + n * interval '1 second', now()
		from generate_series(1, $2::int) n`, id.Owner, domain.MaxRebuilds+50)
	tablestest.Must(t, err)
	definition := domain.Definition{Name: id.Name}
	tablestest.Must(t, s.CreateProjection(t.Context(), domain.Projection{ProjectionID: id, Definition: definition, Build: 5000}, "test"))
	tablestest.Must(t, s.CreateRebuild(t.Context(), domain.Rebuild{ProjectionID: id, ID: domain.NewRebuildID(), Build: 5001, Definition: definition}))
	var swapped, failed int
	tablestest.Must(t, super.QueryRow(t.Context(), `
		select count(*) filter (where state = 'swapped'), count(*) filter (where state = 'failed') from manifold.rebuilds where tenant_id = $1`,
		id.Owner).Scan(&swapped, &failed))
	if swapped != 2 || failed != domain.MaxRebuilds {
		t.Errorf("%d rebuilds that swapped and %d that failed are left; want 2 and %d", swapped, failed, domain.MaxRebuilds)
	}
}
