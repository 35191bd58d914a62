package group

import (
	"testing"

	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables/plantest"
)

func TestPlans(t *testing.T) {
	t.Parallel()
	plantest.Check(t, migrations.RoleApp, plantest.Groups, []plantest.Statement{
		{SQL: readGroup, Args: "$TENANT, 'mail'", Pages: 10},
		{SQL: groupStatus, Args: "$TENANT, 'mail'", Pages: 30},
		{SQL: groupStatuses, Args: "$TENANT, 'group-1', 20", Pages: 250},
		{SQL: readLedger, Args: "$TENANT, 'mail', 3", Pages: 20},
		{SQL: waitingRetries, Args: "$TENANT, 'mail', 3", Pages: 150},
		{SQL: readReplays, Args: "$TENANT, 'mail', 3, 1000", Pages: 1100},
		{SQL: deadLetters, Args: "$TENANT, 'mail', 30000, 100", Pages: 60},
		{SQL: saveLedger, Args: "$TENANT, 'mail', 0, " + "$TENANT, 1, 0, 'ledger', 1, 1, 1, 1, null", Pages: 40},
		{SQL: saveLedgerCounting, Args: "$TENANT, 'mail', 0, " + "$TENANT, 1, 0, 'ledger', 1, 1, 1, 1, null, 2, '{7,9,30007}', 2, '{8,30008,60009}'", Pages: 80},
		{SQL: removeRetry, Args: "$TENANT, 'mail', 0, " + "$TENANT, 10000", Pages: 20},
		{SQL: removeDeadLetter, Args: "$TENANT, 'mail', 0, " + "$TENANT, 30000", Pages: 20},
		{SQL: putRetries, Args: "$TENANT, 'mail', 0, " + "$TENANT, '{7}', array[" + "$TENANT]::uuid[], '{s}', '{1}', '{1}', '{0}', '{0}', array[now()], '{why}'", Pages: 40},
		{SQL: putDeadLetters, Args: "$TENANT, 'mail', 0, " + "$TENANT, '{7}', array[" + "$TENANT]::uuid[], '{s}', '{1}', '{1}', '{0}', '{0}', '{why}', '{T}', array[now()], array[now()], '{null}'", Pages: 60},
		{SQL: groupMembers, Args: "$TENANT, 'mail', 45000000", Pages: 60},
		{SQL: groupHolds, Args: "$TENANT, 'order'", Pages: 12000},
		{SQL: beatGroup, Args: "$TENANT, 'mail', gen_random_uuid(), 45000000", Pages: 10},
	})
}
