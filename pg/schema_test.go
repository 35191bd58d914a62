package pg_test

import (
	"strings"
	"testing"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
)

func TestCheckSchema(t *testing.T) {
	t.Parallel()
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
