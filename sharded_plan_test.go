package manifold_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// refusedByCitus lists the functions and variables with statements that a cluster never executes, and why.
var refusedByCitus = map[string]string{
	"eventlog.beacons": "the service refuses replicas of a distributed database",
}

// samples are values of parameters, by type.
var samples = map[string]string{
	"bigint": "1", "boolean": "true", "bytea": "''", "double precision": "1", "integer": "1", "interval": "'1 s'", "json": "'1'", "jsonb": "'1'",
	"numeric": "1", "smallint": "1", "text": "'a'", "timestamp with time zone": "'2026-01-01'", "uuid": "'00000000-0000-0000-0000-000000000001'",
}

var namedParameter = regexp.MustCompile(`@[a-zA-Z]\w*`)

// fillers replace what is composed at run time: nothing, a condition, or the name of a table of documents. The first
// with which the text is a statement counts.
var fillers = []string{"", "true", "manifold_documents.documents"}

// Citus plans every statement whose text is constant, also those that tests execute rarely. It plans the others as far
// as a filler completes them: tests of their packages, which run on a cluster, execute all forms that filters and
// orders have.
func TestACitusClusterPlansStatements(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	if !db.Distributed() {
		t.Skip("needs a Citus cluster: set MANIFOLD_TEST_CITUS_URLS")
	}
	driver, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments), MaxConns: 1}) // it makes its tables
	if err != nil {
		t.Fatal(err)
	}
	driver.Close()
	conn := db.Nodes(t)[0]
	if _, err := conn.Exec(t.Context(), "set search_path = manifold"); err != nil {
		t.Fatal(err)
	}
	planned, completed, excepted, all := 0, 0, map[string]bool{}, packages(t)
	shared := sharedSQL(t, all)
	for _, p := range all {
		name := p.name()
		if forTests(name) || within(name, "drivers/sqlserver") { // another language
			continue
		}
		for _, literal := range sqlOf(t, p, shared) {
			if !statementStart.MatchString(literal.sql) {
				continue
			}
			key := name + "." + literal.declaration
			err := plan(t, conn, strings.ReplaceAll(literal.sql, unknown, fillers[0]))
			for _, filler := range fillers[1:] {
				if strings.Contains(literal.sql, unknown) && err != nil && !refusedToPlan(err) {
					err = plan(t, conn, strings.ReplaceAll(literal.sql, unknown, filler))
				}
			}
			_, answered := errors.AsType[*pgconn.PgError](err)
			switch {
			case err == nil && strings.Contains(literal.sql, unknown):
				completed++
			case err == nil:
				planned++
			case !answered:
				t.Fatal(err)
			case !refusedToPlan(err): // it is no statement, or needs other values
			case refusedByCitus[key] != "":
				excepted[key] = true
			default:
				t.Errorf("%s: %v\n%s", key, err, literal.sql)
			}
		}
	}
	if planned < 200 || completed < 20 {
		t.Errorf("only %d statements were planned, and %d that a filler completes", planned, completed)
	}
	t.Logf("%d statements were planned, and %d that a filler completes", planned, completed)
	for key := range refusedByCitus {
		if !excepted[key] {
			t.Errorf("%s is excepted, but all of its statements are planned", key)
		}
	}
}

// refusedToPlan reports whether the database understood a statement, and refuses to plan it.
func refusedToPlan(err error) bool {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (refusal.Code == "0A000" || refusal.Code == "XX000")
}

// plan returns the error with which the database refuses to plan a statement, if it does.
func plan(t *testing.T, conn *pgx.Conn, sql string) error {
	t.Helper()
	numbers := map[string]int{}
	sql = namedParameter.ReplaceAllStringFunc(sql, func(name string) string {
		if numbers[name] == 0 {
			numbers[name] = len(numbers) + 1
		}
		return fmt.Sprintf("$%d", numbers[name])
	})
	exec := func(statement string) error {
		_, err := conn.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol)
		return err
	}
	if err := exec("prepare planned as " + sql); err != nil {
		return err
	}
	defer func() {
		if err := exec("deallocate planned"); err != nil {
			t.Fatal(err)
		}
	}()
	var types []string
	err := conn.QueryRow(t.Context(), "select parameter_types::text[] from pg_prepared_statements where name = 'planned'").Scan(&types)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, of := range types {
		value, ok := samples[strings.TrimSuffix(of, "[]")]
		switch {
		case !ok:
			value = "null"
		case strings.HasSuffix(of, "[]"):
			value = "array[" + value + "]::" + of
		}
		values = append(values, value)
	}
	explain := "explain execute planned"
	if len(values) > 0 {
		explain += "(" + strings.Join(values, ", ") + ")"
	}
	return exec(explain)
}
