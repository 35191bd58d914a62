package pg_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/tables"
)

func TestCheckSchema(t *testing.T) {
	t.Parallel()
	pgtest.NotOnCluster(t, "TestCheckSchemaOfADistributedDatabase is about clusters")
	db := pgtest.Database(t)
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	for _, step := range []struct{ statement, want string }{
		{"select 1", ""},
		{"update public.manifold_schema set version = version + 1", ""},
		{"update public.manifold_schema set version = 1", "the schema is at version 1"},
		{"update public.manifold_schema set dirty = true", "was interrupted"},
		{"delete from public.manifold_schema", "no schema yet"},
		{"drop table public.manifold_schema", "no schema yet"},
	} {
		if _, err := super.Exec(t.Context(), step.statement); err != nil {
			t.Fatal(err)
		}
		err := s.CheckSchema(t.Context())
		if (err == nil) != (step.want == "") || err != nil && !strings.Contains(err.Error(), step.want) {
			t.Errorf("after %s: %v; want %q", step.statement, err, step.want)
		}
	}
	if synced, err := s.Synced(t.Context()); err != nil || synced {
		t.Errorf("the tests' server, which does not sync, is said to: %t, %v", synced, err)
	}
}

// No process starts on a distributed database where row-level security would hide rows from one of its logins, or where
// a table is not distributed.
func TestCheckSchemaOfADistributedDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	pgtest.PretendDistributed(t, db)
	super := db.Nodes(t)[0]
	undistribute := "delete from pg_dist_partition where logicalrelid = 'manifold.totals'::regclass"
	if db.Distributed() {
		undistribute = "select undistribute_table('manifold.totals')"
	}
	const setting = "citus.propagate_set_commands"
	ofDatabase, ofLogin := "alter database "+db.Name, "alter role %s in database "+db.Name
	for _, step := range []struct{ statement, want string }{
		{"select 1", ""},
		{ofDatabase + " set " + setting + " = 'none'", "citus.propagate_set_commands is none and not local"},
		{ofDatabase + " set " + setting + " = 'local'", ""},
		{fmt.Sprintf(ofLogin, "manifold_app") + " set " + setting + " = 'none'", "the app login"},
		{fmt.Sprintf(ofLogin, "manifold_app") + " reset " + setting, ""},
		{fmt.Sprintf(ofLogin, "manifold_retention") + " set " + setting + " = 'none'", "the retention login"},
		{fmt.Sprintf(ofLogin, "manifold_retention") + " reset " + setting, ""},
		{undistribute, "these tables are not distributed: totals"},
	} {
		if _, err := super.Exec(t.Context(), step.statement); err != nil {
			t.Fatal(err)
		}
		err := openAndCheck(t, db)
		if (err == nil) != (step.want == "") || err != nil && !strings.Contains(err.Error(), step.want) {
			t.Errorf("after %s: %v; want %q", step.statement, err, step.want)
		}
		if reason := pg.Absence(err); step.want != "" && (!strings.Contains(reason, "manifold migrate up --distribute") || strings.Contains(reason, "login:")) {
			t.Errorf("after %s the reason for everybody is %q", step.statement, reason)
		}
	}
}

// openAndCheck checks the schema with new sessions, which have the defaults of this moment.
func openAndCheck(t *testing.T, db pgtest.DB) error {
	t.Helper()
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !s.Distributed {
		t.Fatal("the database does not count as distributed")
	}
	return s.CheckSchema(t.Context())
}
