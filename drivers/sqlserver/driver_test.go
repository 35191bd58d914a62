package sqlserver_test

import (
	"database/sql"
	"net"
	"net/url"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/drivertest"
	"github.com/manifold-es/manifold/drivers/sqlserver"
	"github.com/manifold-es/manifold/drivers/sqlserver/sqlservertest"
)

// database creates a database, with read_committed_snapshot on or off, and drops it when the test ends.
func database(t *testing.T, snapshot bool) (address *url.URL, db *sql.DB) {
	t.Helper()
	address = sqlservertest.Database(t, "read_committed_snapshot "+map[bool]string{true: "on", false: "off"}[snapshot])
	db, err := sql.Open("sqlserver", address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return address, db
}

func open(t *testing.T, address string) *sqlserver.Driver {
	t.Helper()
	driver, err := sqlserver.Open(t.Context(), sqlserver.Config{URL: address, MaxConns: 4})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return driver
}

// patterns reports whether new databases on the server have regular expressions.
func patterns(t *testing.T) bool {
	t.Helper()
	db, err := sql.Open("sqlserver", sqlservertest.Server(t).String())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var level int
	if err := db.QueryRowContext(t.Context(), "select compatibility_level from sys.databases where name = 'model'").Scan(&level); err != nil {
		t.Fatal(err)
	}
	return level >= 170
}

func harness(t *testing.T, snapshot bool) drivertest.Harness {
	return drivertest.Harness{NoPatterns: !patterns(t), Place: func(t *testing.T) drivertest.Place {
		address, db := database(t, snapshot)
		return drivertest.Place{
			Open: func(t *testing.T) drivers.Driver { return open(t, address.String()) },
			Public: func(t *testing.T, projection string) ([]drivertest.PublicDocument, bool) {
				return public(t, db, projection)
			},
			Address: address.Host,
			OpenAt: func(t *testing.T, host string) drivers.Driver {
				other := *address
				other.Host = host
				return open(t, other.String())
			},
			Forget: func(t *testing.T) { forget(t, db) },
		}
	}}
}

// Both settings of read_committed_snapshot are in use: Azure SQL has it on by default, SQL Server off.

func TestConformance(t *testing.T) {
	t.Parallel()
	sqlservertest.Server(t)
	t.Run("snapshot", func(t *testing.T) { t.Parallel(); drivertest.Run(t, harness(t, true)) })
	t.Run("locking", func(t *testing.T) { t.Parallel(); drivertest.Run(t, harness(t, false)) })
}

func TestFaults(t *testing.T) {
	t.Parallel()
	address := sqlservertest.Server(t)
	if _, _, err := net.SplitHostPort(address.Host); err != nil {
		t.Fatalf("%s has to name a port: %v", sqlservertest.Variable, err)
	}
	t.Run("snapshot", func(t *testing.T) { t.Parallel(); drivertest.RunFaults(t, harness(t, true)) })
	t.Run("locking", func(t *testing.T) { t.Parallel(); drivertest.RunFaults(t, harness(t, false)) })
}

// public reads a view as people do.
func public(t *testing.T, db *sql.DB, projection string) (documents []drivertest.PublicDocument, ok bool) {
	t.Helper()
	view := sqlserver.ViewName(projection)
	var there int
	if err := db.QueryRowContext(t.Context(), "select count(*) from sys.views where object_id = object_id(@p1)", view).Scan(&there); err != nil {
		t.Fatal(err)
	}
	if there == 0 {
		return nil, false
	}
	rows, err := db.QueryContext(t.Context(), "select tenant_id, id, version from "+view)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var document drivertest.PublicDocument
		var tenant mssql.UniqueIdentifier
		if err := rows.Scan(&tenant, &document.ID, &document.Version); err != nil {
			t.Fatal(err)
		}
		document.Tenant = domain.TenantID(tenant)
		documents = append(documents, document)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return documents, true
}

// forget drops everything in the driver's schema.
func forget(t *testing.T, db *sql.DB) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `select 'drop ' + case type when 'V' then 'view ' else 'table ' end + quotename(schema_name(schema_id)) + '.' + quotename(name)
		from sys.objects where schema_id = schema_id('manifold_documents') and type in ('V', 'U') order by type desc`)
	if err != nil {
		t.Fatal(err)
	}
	var drops []string
	for rows.Next() {
		var drop string
		if err := rows.Scan(&drop); err != nil {
			t.Fatal(err)
		}
		drops = append(drops, drop)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for _, drop := range append(drops, "drop schema manifold_documents") {
		if _, err := db.ExecContext(t.Context(), drop); err != nil {
			t.Fatalf("%s: %v", drop, err)
		}
	}
}
