package postgres_test

import (
	"net/url"
	"testing"

	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/drivertest"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

func TestFaults(t *testing.T) {
	t.Parallel()
	drivertest.RunFaults(t, drivertest.Harness{Place: func(t *testing.T) drivertest.Place {
		db := pgtest.Database(t)
		super := db.Pool(t, pgtest.RoleSuperuser, 1)
		address, err := url.Parse(db.URL(migrations.RoleDocuments))
		if err != nil {
			t.Fatal(err)
		}
		return drivertest.Place{
			Open:    func(t *testing.T) drivers.Driver { return open(t, db) },
			Address: address.Host,
			OpenAt: func(t *testing.T, proxy string) drivers.Driver {
				through := *address
				through.Host = proxy
				driver, err := postgres.Open(t.Context(), postgres.Config{URL: through.String(), MaxConns: 4})
				if err != nil {
					t.Fatalf("Open: %v", err)
				}
				return driver
			},
			Forget: func(t *testing.T) {
				_, err := super.Exec(t.Context(), `do $$ declare name text; begin
					for name in select oid::regclass from pg_class
						where relnamespace = 'manifold_documents'::regnamespace and relkind = 'r'
					loop
						execute format('drop table if exists %s cascade', name);
					end loop;
				end $$`)
				if err != nil {
					t.Fatal(err)
				}
			},
		}
	}})
}
