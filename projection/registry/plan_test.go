package registry

import (
	"testing"

	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables/plantest"
)

func TestPlans(t *testing.T) {
	t.Parallel()
	plantest.Check(t, migrations.RoleApp, plantest.Projections, []plantest.Statement{
		{SQL: projectionRow, Args: "'00000000-0000-0000-0000-000000000000', 'shared-7', $TENANT", Pages: 30},
	})
}
