package limits

import (
	"testing"

	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/tables/plantest"
)

func TestPlans(t *testing.T) {
	t.Parallel()
	fill := []string{
		`insert into manifold.limit_ledgers (tenant_id, key_id, state)
			select case when n % 2 = 0 then $TENANT else md5((n % 500)::text)::uuid end, lpad(to_hex(n), 32, '0')::uuid, '{}' from generate_series(1, 20000) as n`,
		`insert into manifold.tenant_limits (tenant_id, limits, quotas) select lpad(to_hex(n), 32, '0')::uuid, '{}', '{}' from generate_series(1, 20000) as n`,
		`insert into manifold.stored_events (tenant_id) select l.tenant_id from manifold.tenant_limits as l`,
		`insert into manifold.logs (tenant_id) select l.tenant_id from manifold.tenant_limits as l`,
		`insert into manifold.stored_events (tenant_id) values ($TENANT)`,
		`insert into manifold.logs (tenant_id) values ($TENANT)`,
	}
	statement := func(name, sql, args string) plantest.Statement {
		return plantest.Statement{SQL: pg.Statement{Name: name, SQL: sql}, Args: args, Pages: 30}
	}
	const key = "$TENANT, '00000000-0000-0000-0000-000000000064'"
	plantest.Check(t, migrations.RoleSystem, fill, []plantest.Statement{
		statement("lock_ledger", lockLedger, key),
		statement("find_ledger", findLedger, key),
		statement("update_ledger", updateLedger, key+", '{}'"),
		statement("insert_ledger", insertLedger, key+", '{}'"),
		statement("read_stored", readStored, "$TENANT"),
		statement("read_tenant_limits", readTenantLimits, "$TENANT"),
	})
}
