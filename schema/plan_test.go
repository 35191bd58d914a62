package schema

import (
	"testing"

	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/tables/plantest"
)

func TestPlans(t *testing.T) {
	t.Parallel()
	fill := []string{
		`insert into manifold.schema_sets (tenant_id, revision) select lpad(to_hex(n), 32, '0')::uuid, 1 from generate_series(1, 10000) as n`,
		`insert into manifold.schema_types (tenant_id, event_type, compatibility)
			select case when n <= 500 then $TENANT else md5((n % 100)::text)::uuid end, 'Type-' || n, 'backward' from generate_series(1, 20000) as n`,
		`insert into manifold.schema_versions (tenant_id, event_type, version, schema, breaking, revision, by)
			select t.tenant_id, t.event_type, v, '{}', false, 1, '' from manifold.schema_types as t cross join generate_series(1, 2) as v`,
		`insert into manifold.schema_rules (tenant_id, category, mode, unknown_types, by)
			select t.tenant_id, t.event_type, 'warn', 'accept', '' from manifold.schema_types as t`,
	}
	statement := func(name, sql, args string, pages int) plantest.Statement {
		return plantest.Statement{SQL: pg.Statement{Name: name, SQL: sql}, Args: args, Pages: pages}
	}
	plantest.Check(t, migrations.RoleApp, fill, []plantest.Statement{
		statement("revision", selectRevision, "$TENANT", 10),
		statement("versions", listVersions, "$TENANT", 1200),
		statement("tags", listTags, "$TENANT", 600),
		statement("rules", listRules, "$TENANT", 600),
		statement("version", readVersion, "$TENANT, 'Type-7', 1", 10),
	})
}
