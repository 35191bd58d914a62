package tables_test

import (
	"encoding/json"
	"testing"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// What a statement forgets, row-level security still holds back.
func TestTheAppRoleSeesOnlyItsTenant(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenants := []domain.TenantID{tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)}
	for _, tenant := range tenants {
		tablestest.Must(t, s.CreateKey(t.Context(), tablestest.NewKey(tenant, "key")))
		tablestest.Must(t, s.PutAggregate(t.Context(), tenant, aggregate.Definition{Category: "order", On: map[string]string{"*": "state"}}))
		tablestest.Must(t, s.PutSnapshots(t.Context(), tenant, aggregate.Snapshot{Stream: "order-1", Tag: "t", Version: 1, State: json.RawMessage(`{}`)}))
		tablestest.Projection(t, s, domain.ProjectionID{Owner: tenant, Name: "same"})
		tablestest.PutFault(t, s, domain.Fault{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "same"}, Tenant: tenant, Build: 1, Position: 1})
	}
	tablestest.Projection(t, s, domain.ProjectionID{Owner: domain.Everyone, Name: "shared"})

	conn := db.Pool(t, migrations.RoleApp, 1)
	count := func(setting, table string) (all, mine int) {
		tx, err := conn.Begin(t.Context())
		tablestest.Must(t, err)
		defer tx.Rollback(t.Context())
		if setting != "" {
			_, err = tx.Exec(t.Context(), "set local manifold.tenant = '"+setting+"'")
			tablestest.Must(t, err)
		}
		tablestest.Must(t, tx.QueryRow(t.Context(), "select count(*), count(*) filter (where tenant_id::text = $1) from manifold."+table, setting).Scan(&all, &mine))
		return all, mine
	}
	for _, table := range []string{"tenants", "aggregates", "snapshots", "projections", "build_numbers", "rebuilds", "faults"} {
		if all, _ := count("", table); all != 0 {
			t.Errorf("without a tenant, %d rows of %s are seen", all, table)
		}
		want := 1
		if table == "projections" {
			want = 2 // the shared one is everyone's to read
		}
		for _, tenant := range tenants {
			if all, mine := count(tenant.String(), table); all != want || mine != 1 {
				t.Errorf("tenant %s sees %d rows of %s, %d its own", tenant, all, table, mine)
			}
		}
	}
	// A shared projection is not a tenant's to change, nor is another tenant's row.
	change := func(statement string) int64 {
		tx, err := conn.Begin(t.Context())
		tablestest.Must(t, err)
		defer tx.Rollback(t.Context())
		_, err = tx.Exec(t.Context(), "set local manifold.tenant = '"+tenants[0].String()+"'")
		tablestest.Must(t, err)
		done, err := tx.Exec(t.Context(), statement)
		tablestest.Must(t, err)
		return done.RowsAffected()
	}
	for _, statement := range []string{
		"update manifold.projections set build = 99 where tenant_id <> '" + tenants[0].String() + "'",
		"delete from manifold.snapshots where tenant_id <> '" + tenants[0].String() + "'",
	} {
		if rows := change(statement); rows != 0 {
			t.Errorf("%s changed %d rows", statement, rows)
		}
	}
	if _, err := conn.Exec(t.Context(), "select count(*) from manifold.keys"); err == nil {
		t.Error("the app role may read keys")
	}
}
