package migrations_test

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// lastUndistributed is the last migration that no distributed database has ever run.
const lastUndistributed = "0011"

var (
	comment       = regexp.MustCompile(`--[^\n]*`)
	dollarQuoted  = regexp.MustCompile(`(?s)\$\$.*?\$\$`)
	bracketed     = regexp.MustCompile(`\([^()]*\)`)
	addConstraint = regexp.MustCompile(`(?is)alter\s+table.*\badd\s+(constraint|check|unique|primary|foreign|exclude)\b`)
)

// problemsOf returns what a distributed database refuses in a migration.
func problemsOf(migration string) (problems []string) {
	for _, statement := range migrations.Statements(migration) {
		code := strings.TrimSpace(dollarQuoted.ReplaceAllString(comment.ReplaceAllString(statement, ""), ""))
		if strings.Count(code, ";") != 1 || !strings.HasSuffix(code, ";") {
			problems = append(problems, "a call must be one statement, which ends with a semicolon at the end of a line: "+code)
		}
		for bracketed.MatchString(code) {
			code = bracketed.ReplaceAllString(code, "")
		}
		if addConstraint.MatchString(code) && strings.Contains(code, ",") {
			problems = append(problems, "add a constraint in a separate statement: "+code)
		}
	}
	return problems
}

func TestMigrationsFitADistributedDatabase(t *testing.T) {
	t.Parallel()
	for migration, problems := range map[string]int{
		"create table a (b int, c int);\nalter table a add column d int, add column e int; -- fine\n": 0,
		"alter table a add constraint b check (c in ('d', 'e')) not valid;\n":                         0,
		"alter table a add column d int,\n  add constraint b check (d > 0);\n":                        1,
		"alter table a add column d int; alter table a add column e int;\n":                           1,
		"do $$ begin\n  perform 1;\n  perform 2;\nend $$;\n":                                          0,
		"select 1": 1,
	} {
		if found := problemsOf(migration); len(found) != problems {
			t.Errorf("%s: %q, want %d problems", migration, found, problems)
		}
	}
	names, err := fs.Glob(migrations.Files, "*.sql")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d migrations, %v", len(names), err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(migrations.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		if number, _, _ := strings.Cut(name, "_"); number <= lastUndistributed {
			continue
		}
		for _, problem := range problemsOf(string(text)) {
			t.Errorf("%s: %s", name, problem)
		}
	}
}

func TestMovesNeedAPlugin(t *testing.T) {
	t.Parallel()
	for libraries, want := range map[string]bool{
		"pgoutput": true, "pgoutput, test_decoding": true, `test_decoding,"pgoutput"`: true,
		"": false, "test_decoding": false, "citus_pgoutput, pgoutput2": false,
	} {
		if got := migrations.AllowsPlugin(libraries); got != want {
			t.Errorf("%s: %v, want %v", libraries, got, want)
		}
	}
}

func TestDistributeNeedsCitus(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	if db.Distributed() {
		t.Skip("for a database without Citus")
	}
	if err := migrations.Distribute(t.Context(), db.URL(pgtest.RoleMigrator)); err == nil || !strings.Contains(err.Error(), "no extension citus") {
		t.Errorf("it says %v", err)
	}
	distributed, err := migrations.IsDistributed(t.Context(), db.Pool(t, migrations.RoleApp, 1))
	if err != nil || distributed {
		t.Errorf("distributed %v, %v", distributed, err)
	}
}

// Distributing a database keeps its rows, and the isolation of tenants, and may be repeated.
func TestDistributeKeepsRows(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := pgtest.Database(t)
	if !db.Distributed() {
		t.Skip("needs a Citus cluster: set MANIFOLD_TEST_CITUS_URLS")
	}
	migrator := db.URL(pgtest.RoleMigrator)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	for _, statement := range []string{"drop schema manifold cascade", "drop schema manifold_documents cascade", "drop table manifold_schema"} {
		if _, err := super.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := migrations.Up(ctx, migrator, nil); err != nil {
		t.Fatal(err)
	}
	if distributed, err := migrations.IsDistributed(ctx, super); err != nil || distributed {
		t.Fatalf("the new tables are distributed: %v, %v", distributed, err)
	}
	const tenants = 5
	_, err := super.Exec(ctx, `insert into manifold.logs (tenant_id, head) select ('00000000-0000-0000-0000-00000000000' || n)::uuid, n from generate_series(1, $1) n`, tenants)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := migrations.Distribute(ctx, migrator); err != nil {
			t.Fatal(err)
		}
	}
	if missing, err := migrations.Undistributed(ctx, super); err != nil || len(missing) > 0 {
		t.Errorf("not distributed: %q, %v", missing, err)
	}
	for number, node := range db.Nodes(t) {
		var defaults int
		err := node.QueryRow(ctx, `select count(*) from pg_db_role_setting s, unnest(s.setconfig) as setting
			where s.setdatabase = (select oid from pg_database where datname = current_database())
			  and s.setrole in ($1::regrole, $2::regrole)`, migrations.RoleApp, migrations.RoleRetention).Scan(&defaults)
		// If the logins are older than the database, Citus passes on those of the others when there are tables of
		// documents.
		if want := 5; err != nil || defaults != want {
			t.Errorf("node %d has %d defaults of logins, %v; want %d", number, defaults, err, want)
		}
	}
	app := db.Pool(t, migrations.RoleApp, 1)
	for tenant, want := range map[string]int{"00000000-0000-0000-0000-000000000002": 1, "00000000-0000-0000-0000-000000000009": 0, "": 0} {
		var rows int
		err := pgx.BeginFunc(ctx, app, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "set local manifold.tenant = '"+tenant+"'"); err != nil {
				return err
			}
			return tx.QueryRow(ctx, "select count(*) from manifold.logs").Scan(&rows)
		})
		if err != nil || rows != want {
			t.Errorf("tenant %q sees %d rows, %v; want %d", tenant, rows, err, want)
		}
	}
	if err := migrations.Down(ctx, migrator); err == nil || !strings.Contains(err.Error(), "drop the database") {
		t.Errorf("down: %v", err)
	}
	var reference int
	if err := super.QueryRow(ctx, "select count(*) from manifold.service_secrets").Scan(&reference); err != nil || reference != 1 {
		t.Errorf("the reference table has %d rows, %v; want 1", reference, err)
	}
}

// Each migration also runs on a distributed database, and leaves every node with what a new database has. A local table
// that an earlier release made a reference table becomes local, with its rows.
func TestMigrationsRunOnADistributedDatabase(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := pgtest.Database(t)
	if !db.Distributed() {
		t.Skip("needs a Citus cluster: set MANIFOLD_TEST_CITUS_URLS")
	}
	nodes := db.Nodes(t)
	schemas := func() (all []string) {
		for _, node := range nodes {
			all = append(all, schemaOf(t, node))
		}
		return all
	}
	fresh := schemas()
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	downTo(t, super, lastUndistributed)
	for _, statement := range []string{
		"insert into manifold.members (member_id, name, version) values ('0190d3a4-5b6c-9def-8123-456789abcdef', 'earlier', 'v1')",
		"alter table manifold.members no force row level security",
		"select create_reference_table('manifold.members')",
	} {
		if _, err := super.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := migrations.Up(ctx, db.URL(pgtest.RoleMigrator), nil); err != nil {
		t.Fatal(err)
	}
	var kept int
	if err := super.QueryRow(ctx, "select count(*) from manifold.members").Scan(&kept); err != nil || kept != 1 {
		t.Errorf("the local table has %d rows, %v; want 1", kept, err)
	}
	for number, schema := range schemas() {
		if schema != fresh[number] {
			t.Errorf("node %d: migrated\n%s\nnew\n%s", number, schema, fresh[number])
		}
	}
	if missing, err := migrations.Undistributed(ctx, super); err != nil || len(missing) > 0 {
		t.Errorf("not distributed: %q, %v", missing, err)
	}
}

// downTo reverts the migrations after a version, such as "0021", also on a distributed database.
func downTo(t *testing.T, super *pgxpool.Pool, version string) {
	t.Helper()
	ctx := t.Context()
	names, err := fs.Glob(migrations.Files, "*.down.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Backward(names) {
		if number, _, _ := strings.Cut(name, "_"); number <= version {
			break
		}
		text, err := fs.ReadFile(migrations.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		if err := pgx.BeginFunc(ctx, super, func(tx pgx.Tx) error { return migrations.Apply(ctx, tx, string(text)) }); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if _, err := super.Exec(ctx, "update manifold_schema set version = $1::text::bigint", version); err != nil {
		t.Fatal(err)
	}
}

// schemaOf describes a node's tables and indexes, a line each. Shards of a table are the same line; columns are in no
// order.
func schemaOf(t *testing.T, node *pgx.Conn) (schema string) {
	t.Helper()
	err := node.QueryRow(t.Context(), `
		with described as (
		  select distinct regexp_replace(c.relname, '_\d{6,}$', '') as name,
		    concat_ws(' ', c.relkind, c.relowner::regrole, c.relrowsecurity, c.relforcerowsecurity,
		      (select array_agg(a order by a) from unnest(c.relacl::text[]) a), (select array_agg(o order by o) from unnest(c.reloptions) o),
		      (select array_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), a.attcollation::regcollation, a.attnotnull,
		          pg_get_expr(d.adbin, d.adrelid), a.attacl::text) order by a.attname)
		        from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
		        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
		      (select array_agg(concat_ws(' ', p.polname, p.polcmd, p.polroles::regrole[]) order by p.polname)
		        from pg_policy p where p.polrelid = c.oid)) as text
		  from pg_class c where c.relnamespace = 'manifold'::regnamespace and c.relkind in ('r', 'i'))
		select string_agg(name || ' ' || text, E'\n' order by name, text) from described`).Scan(&schema)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}
