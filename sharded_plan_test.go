package manifold_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/embedded/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// refusedByCitus lists the functions and variables with statements that a cluster never executes, and why.
var refusedByCitus = map[string]string{
	"eventlog.putBeacon": "the service refuses replicas of a distributed database",
}

// samples are values of parameters, by type.
var samples = map[string]string{
	"bigint": "1", "boolean": "true", "bytea": "''", "double precision": "1", "integer": "1", "interval": "'1 s'", "json": "'1'", "jsonb": "'1'",
	"numeric": "1", "smallint": "1", "text": "'a'", "timestamp with time zone": "'2026-01-01'", "uuid": "'00000000-0000-0000-0000-000000000001'",
}

var namedParameter = regexp.MustCompile(`@[a-zA-Z]\w*`)

// Citus plans every statement whose text is constant, also those that tests execute rarely.
func TestACitusClusterPlansStatements(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	if !db.Distributed() {
		t.Skip("needs a Citus cluster: set MANIFOLD_TEST_CITUS_URLS")
	}
	conn := db.Nodes(t)[0]
	if _, err := conn.Exec(t.Context(), "set search_path = manifold"); err != nil {
		t.Fatal(err)
	}
	planned, excepted, all := 0, map[string]bool{}, packages(t)
	shared := sharedSQL(t, all)
	for _, p := range all {
		name := p.name()
		if forTests(name) || within(name, "cli") || within(name, "cmd") || within(name, "drivers") {
			continue
		}
		for _, literal := range sqlOf(t, p, shared) {
			if !statementStart.MatchString(literal.sql) || strings.Contains(literal.sql, unknown) {
				continue
			}
			key := name + "." + literal.declaration
			err := plan(t, conn, literal.sql)
			refusal, refused := errors.AsType[*pgconn.PgError](err)
			switch {
			case err == nil:
				planned++
			case !refused:
				t.Fatal(err)
			case refusal.Code != "0A000" && refusal.Code != "XX000": // it is no statement, or needs other values
			case refusedByCitus[key] != "":
				excepted[key] = true
			default:
				t.Errorf("%s: %v\n%s", key, err, literal.sql)
			}
		}
	}
	if planned < 200 {
		t.Errorf("only %d statements were planned", planned)
	}
	for key := range refusedByCitus {
		if !excepted[key] {
			t.Errorf("%s is excepted, but all of its statements are planned", key)
		}
	}
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
