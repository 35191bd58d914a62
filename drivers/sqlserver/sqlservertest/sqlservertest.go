// Package sqlservertest gives tests databases on the SQL Server that MANIFOLD_TEST_SQLSERVER_URL names. Without one,
// the tests are skipped. Parallel tests may call all functions.
package sqlservertest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"strings"
	"testing"

	_ "github.com/microsoft/go-mssqldb" // registers the driver
)

// Variable is the environment variable with the URL of a server, with a login that may create databases.
const Variable = "MANIFOLD_TEST_SQLSERVER_URL"

// Server returns the URL of the server, or skips the test with a message.
func Server(t testing.TB) *url.URL {
	t.Helper()
	text := os.Getenv(Variable)
	if text == "" {
		t.Skipf("NOT RUN: %s ON SQL SERVER. Set %s to the URL of a server, such as sqlserver://sa:PASSWORD@127.0.0.1:1433?database=master",
			strings.ToUpper(t.Name()), Variable)
	}
	address, err := url.Parse(text)
	if err != nil {
		t.Fatalf("%s is not a URL", Variable) // the error would have the password
	}
	return address
}

// In returns the URL with another database.
func In(address *url.URL, database string) *url.URL {
	other := *address
	query := other.Query()
	query.Set("database", database)
	other.RawQuery = query.Encode()
	return &other
}

// Database returns the URL of a new database with some settings, such as "read_committed_snapshot on". It is dropped
// when the test ends.
func Database(t testing.TB, settings ...string) *url.URL {
	t.Helper()
	address := Server(t)
	admin, err := sql.Open("sqlserver", address.String())
	if err != nil {
		t.Fatal(err)
	}
	name := "manifold_test_" + strings.ToLower(rand.Text()[:12])
	statements := []string{"create database " + name}
	for _, setting := range settings {
		statements = append(statements, "alter database "+name+" set "+setting+" with rollback immediate")
	}
	for _, statement := range statements {
		if _, err := admin.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	t.Cleanup(func() {
		for _, statement := range []string{"alter database " + name + " set single_user with rollback immediate", "drop database " + name} {
			if _, err := admin.ExecContext(context.Background(), statement); err != nil {
				t.Errorf("%s: %v", statement, err)
			}
		}
		if err := admin.Close(); err != nil {
			t.Error(err)
		}
	})
	return In(address, name)
}

// Rows returns all rows of all tables of a database as text, one a line.
func Rows(t testing.TB, address *url.URL) string {
	t.Helper()
	db, err := sql.Open("sqlserver", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	// A statement that gives each row as JSON. The inner query makes one document of one row.
	var statement sql.NullString
	err = db.QueryRowContext(t.Context(), `
		select string_agg(cast(concat('select (select t.* for json path, without_array_wrapper) from ',
		  quotename(schema_name(schema_id)), '.', quotename(name), ' as t') as nvarchar(max)), ' union all ')
		from sys.tables`).Scan(&statement)
	if err != nil {
		t.Fatal(err)
	}
	if !statement.Valid {
		return "" // there is no table
	}
	rows, err := db.QueryContext(t.Context(), statement.String)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all strings.Builder
	for rows.Next() {
		var row string
		if err := rows.Scan(&row); err != nil {
			t.Fatal(err)
		}
		all.WriteString(row + "\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all.String()
}
