package postgres_test

import (
	"errors"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// The primary becomes a standby while connections to it stay open, as with a proxy between. A save reports that the
// database cannot serve, and the connections are replaced by new ones, which lead to the new primary.
func TestStandbysConnectionsAreGivenUp(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	driver := open(t, db)
	defer driver.Close()
	tenant := domain.NewTenantID()
	build := domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "orders"}, Number: 1}
	admin := db.Pool(t, pgtest.RoleSuperuser, 1)
	// The setting applies to new sessions; the driver's are ended.
	for _, statement := range []string{
		"alter database " + db.Name + " set default_transaction_read_only = on",
		"select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and usename = 'manifold_documents'",
	} {
		if _, err := admin.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	batch := drivers.Batch{To: 1, Upserts: documents(1, "a")}
	err := driver.Save(t.Context(), build, tenant, batch)
	if problem, ok := errors.AsType[*domain.Error](err); !ok || problem.Code != domain.CodeUnavailable {
		t.Errorf("a save to a standby ends with %v", err)
	}
	if _, err := admin.Exec(t.Context(), "alter database "+db.Name+" set default_transaction_read_only = off"); err != nil {
		t.Fatal(err)
	}
	save(t, driver, build, tenant, batch)
}
