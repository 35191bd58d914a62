package mongo_test

import (
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/drivertest/proxy"
	"github.com/manifold-es/manifold/drivers/mongo/mongotest"
)

// A query that runs out of time is too costly if the server answers other commands. Otherwise the server is
// unavailable.
func TestQueryThatRunsOutOfTime(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(mongotest.FerretDB(t))
	if err != nil {
		t.Fatal(err)
	}
	p := proxy.New(t, address.Host)
	through := *address
	through.Host = p.Address()
	driver := open(t, through.String())
	defer driver.Close()
	build := domain.Build{ProjectionID: domain.ProjectionID{Name: "orders"}, Number: 1}
	tenant := domain.NewTenantID()
	if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	if err := driver.Save(t.Context(), build, tenant, drivers.Batch{To: 1}); err != nil {
		t.Fatal(err)
	}
	driver.SetQueryTime(500 * time.Millisecond)
	queries := map[string]func() error{
		"Query": func() error {
			_, err := driver.Query(t.Context(), build, tenant, domain.DocumentQuery{Limit: 1})
			return err
		},
		"Count": func() error {
			_, err := driver.Count(t.Context(), build, tenant, nil)
			return err
		},
	}
	want := func(code domain.Code) {
		t.Helper()
		for name, query := range queries {
			if refused, ok := errors.AsType[*domain.Error](query()); !ok || refused.Code != code {
				t.Errorf("%s gives %v, want the code %s", name, refused, code)
			}
		}
	}

	// Every reader of the collection waits for this lock; the server answers everything else.
	conn, err := pgx.Connect(t.Context(), mongotest.Storage(t))
	if err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(tx.Rollback(t.Context()), conn.Close(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	rows, err := tx.Query(t.Context(), "select format('%I.%I', schemaname, tablename) from pg_tables where schemaname = $1 and tablename like 'orders%'", address.Path[1:])
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) != 1 {
		t.Fatalf("the collection's tables are %q, %v", tables, err)
	}
	if _, err := tx.Exec(t.Context(), "lock table "+tables[0]+" in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	want(domain.CodeTooCostly)

	p.Hang(proxy.ToClient)
	want(domain.CodeUnavailable)
	p.Heal()
}
