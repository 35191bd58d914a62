package retention_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/retention"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// Whoever locks a policy's row and a category's floor locks the policy's first: while somebody holds it, as an
// announcement does, what a run does next waits with the floor free.
func TestRetentionLocksInOneOrder(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx := t.Context()
	conn, err := db.Pool(t, migrations.RoleRetention, 1).Acquire(ctx)
	tablestest.Must(t, err)
	defer conn.Release()
	run := retention.NewRunID()
	for name, next := range map[string]func(domain.TenantID, retention.Work) error{
		"the end": func(tenant domain.TenantID, work retention.Work) error {
			_, err := s.EndRetention(ctx, tenant, retention.End{Category: "order", Revision: work.Revision, Run: run, Finished: true})
			return err
		},
		"a slice": func(tenant domain.TenantID, work retention.Work) error {
			_, err := s.RemoveRetained(ctx, tenant, retention.Step{
				Policy: work.Policy, Revision: work.Revision, Run: run, Reason: retention.ReasonSweep, UpTo: 2, Limit: 10,
			})
			return err
		},
		"an announcement": func(tenant domain.TenantID, work retention.Work) error {
			_, err := s.AnnounceRetention(ctx, tenant, "order", work.Revision, run, 2)
			return err
		},
	} {
		tenant := tablestest.NewTenant(t, s)
		tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 3))
		_, _, err := s.PutRetentionPolicy(ctx, tenant, retention.Policy{Category: "order", MaxCount: 1})
		tablestest.Must(t, err)
		work, err := s.BeginRetention(ctx, tenant, "order", 0)
		tablestest.Must(t, err)
		_, err = s.AnnounceRetention(ctx, tenant, "order", work.Revision, run, 2)
		tablestest.Must(t, err)
		ended := make(chan error, 1)
		tablestest.Must(t, pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "set local manifold.tenant = '"+tenant.String()+"'")
			tablestest.Must(t, err)
			_, err = tx.Exec(ctx, "select from manifold.retention_policies p where p.tenant_id = $1 for update", tenant)
			tablestest.Must(t, err)
			go func() { ended <- next(tenant, work) }()
			db.WaitForLock(t)
			if _, err := tx.Exec(ctx, "select from manifold.retention_floors f where f.tenant_id = $1 for update nowait", tenant); err != nil {
				t.Errorf("%s has locked the floor, and waits for the policy: %v", name, err)
				return err
			}
			return nil
		}))
		tablestest.Must(t, tablestest.Receive(t, ended, name))
	}
}
