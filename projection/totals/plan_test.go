package totals

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/tables/plantest"
)

// The sums of one tenant are found without those of others. Sums of all tenants read them all.
func TestPlans(t *testing.T) {
	t.Parallel()
	fill := []string{
		`insert into manifold.tenants (tenant_id, name, state) select lpad(to_hex(n), 32, '0')::uuid, 'tenant-' || n, 'active' from generate_series(1, 10000) as n`,
		`insert into manifold.tenants (tenant_id, name, state) values ($TENANT, 'own', 'active')`,
		`insert into manifold.totals (tenant_id, name, build, position, spec, keys_dropped, computed_at, took_ms, revision)
			select t.tenant_id, 'orders', 1, 1, 'spec', false, now(), 1, 1
			from (select $TENANT::uuid as tenant_id union all select lpad(to_hex(n), 32, '0')::uuid from generate_series(1, 10000) as n) as t`,
		`insert into manifold.total_sums (tenant_id, name, key, field, total, documents)
			select t.tenant_id, 'orders', 'key-' || k, 'price', 1, 1 from manifold.totals as t cross join generate_series(1, 5) as k order by t.tenant_id`,
	}
	named, arguments := sumsQuery{name: "orders", spec: "spec", tenant: domain.NewTenantID(), byKey: true, limit: 100}.sumsStatement()
	sql, args, err := arguments.RewriteQuery(t.Context(), nil, named, nil)
	if err != nil || len(args) != 5 {
		t.Fatalf("%s: %v, %v", sql, args, err)
	}
	plantest.Check(t, migrations.RoleSystem, fill, []plantest.Statement{
		{SQL: pg.Statement{Name: "sums_of_a_tenant", SQL: sql}, Args: "'orders', 'spec', '', $TENANT, 100", Pages: 100},
	})
}
