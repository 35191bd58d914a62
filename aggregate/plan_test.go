package aggregate

import (
	"slices"
	"testing"

	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables/plantest"
)

func TestPlans(t *testing.T) {
	t.Parallel()
	// Five snapshots of each stream of events, and of 10,000 streams of other tenants.
	fill := slices.Concat(plantest.Events, []string{
		`insert into manifold.snapshots (tenant_id, stream_id, tag, version, state)
			select distinct e.tenant_id, e.stream_id, 'def:' || n % 2, n, '{"n": 1}'::jsonb
			from manifold.events e cross join generate_series(1, 5) as n where e.tenant_id = $TENANT`,
		`insert into manifold.snapshots (tenant_id, stream_id, tag, version, state)
			select md5((n % 50)::text)::uuid, 'order-' || n, 'def:1', 5, '{}' from generate_series(1, 10000) as n`,
	})
	plantest.Check(t, migrations.RoleApp, fill, []plantest.Statement{
		{SQL: selectSeeds, Args: "$TENANT, 'order-100', 'order.', 'def:1', 20, 1000000, 60000, '{Common}', 200000", Pages: 500},
		{SQL: selectSeeds, Args: "$TENANT, 'order-', 'order.', 'def:none', 200, 1000000, 60000, '{}', 200000", Pages: 150},
	})
}
