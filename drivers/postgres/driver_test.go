package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/drivertest"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func open(t testing.TB, db pgtest.DB) *postgres.Driver {
	t.Helper()
	driver, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments), MaxConns: 4})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return driver
}

func TestConformance(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Harness{Place: func(t *testing.T) drivertest.Place {
		db := pgtest.Database(t)
		super := db.Pool(t, pgtest.RoleSuperuser, 4)
		place := drivertest.Place{Open: func(t *testing.T) drivers.Driver { return open(t, db) }}
		if !db.Distributed() {
			place.Public = func(t *testing.T, projection string) ([]drivertest.PublicDocument, bool) {
				return public(t, super, projection)
			}
		}
		return place
	}})
}

// public reads a view as a login to which it was granted. If its name is not the projection's own, its comment names
// the projection.
func public(t *testing.T, pool *pgxpool.Pool, projection string) ([]drivertest.PublicDocument, bool) {
	t.Helper()
	var view *string
	err := pool.QueryRow(t.Context(), `select (select c.oid::regclass::text from pg_class c
		where c.relnamespace = 'manifold_documents'::regnamespace and c.relkind = 'v' and obj_description(c.oid, 'pg_class') ~ ('^' || $1 || '($|;)'))`,
		"the documents of the shared projection "+projection).Scan(&view)
	if err != nil {
		t.Fatal(err)
	}
	if view == nil {
		return nil, false
	}
	rows, err := pool.Query(t.Context(), "select tenant_id, id, version from "+*view)
	if err != nil {
		t.Fatal(err)
	}
	documents, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (document drivertest.PublicDocument, err error) {
		var tenant [16]byte
		err = row.Scan(&tenant, &document.ID, &document.Version)
		document.Tenant = domain.TenantID(tenant)
		return document, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return documents, true
}
