package retention

import (
	"slices"
	"testing"

	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables/plantest"
)

func TestPlans(t *testing.T) {
	t.Parallel()
	plantest.Check(t, migrations.RoleRetention, slices.Concat(plantest.Events, plantest.Groups, plantest.Retention), []plantest.Statement{
		{SQL: retentionRipe, Args: "$TENANT, 1000000", Pages: 250},
		{SQL: retentionNth, Args: "$TENANT, 'order', 60001, 5000", Pages: 6000},
		{SQL: retentionNext, Args: "$TENANT, 'rare', 30000", Pages: 10},
		{SQL: retentionWindow, Args: "$TENANT, 'order', 30000, 9223372036854775807, 100", Pages: 150},
		{SQL: retentionBefore, Args: "$TENANT, '{order-0,order-1,rare-1,none-1}', '{30000,5,9,2}'", Pages: 40},
		{SQL: retentionNamed, Args: "$TENANT, '{1,2,30000}', array[" + "$TENANT, " + "$TENANT, " + "$TENANT]::uuid[], '{other}', '{p}'", Pages: 40},
		{SQL: retentionSpared, Args: "$TENANT, 'order', 10000, 9223372036854775807, 100, 60000", Pages: 1400},
		{SQL: retentionRemove, Args: "$TENANT, 'order', 30000, 30200, '{30001,30099}'", Pages: 1200},
		{SQL: retentionRemoveOne, Args: "$TENANT, 30001", Pages: 20},
		{SQL: retentionFloors, Args: "$TENANT, 'order', '{order-0,order-1,none-1}', '{1,60000,7}', '{t,f,t}'", Pages: 60},
		{SQL: retentionSpare, Args: "$TENANT, 'order', '{1,4,7}'", Pages: 40},
		{SQL: retentionUnspare, Args: "$TENANT, 'order', 3000, 4000, '{3003,3006,3009,77777}'", Pages: 40},
		{SQL: retentionRemoved, Args: "$TENANT, 'order', 100, 5", Pages: 20},
		{SQL: firstGroupHold, Args: "$TENANT, 'order', '{mail}'", Pages: 12000},
	})
}
