package migrations_test

import (
	"strings"
	"testing"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// Whatever PostgreSQL refuses, the next attempt continues from there, once the reason is gone.
func TestRefusedMigrationMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for schema, reached := range map[string]uint{"manifold": 0, "manifold_documents": 1} {
		db := pgtest.Database(t)
		migrator := db.URL(pgtest.RoleMigrator)
		super := db.Pool(t, pgtest.RoleSuperuser, 1)
		execute := func(statement string) {
			t.Helper()
			if _, err := super.Exec(ctx, statement); err != nil {
				t.Fatal(err)
			}
		}
		if err := migrations.Down(ctx, migrator); err != nil {
			t.Fatal(err)
		}
		execute("create schema " + schema) // in the way
		err := migrations.Up(ctx, migrator, nil)
		if err == nil || !strings.Contains(err.Error(), `"`+schema+`" already exists`) || len(err.Error()) > 300 {
			t.Fatalf("with %s in the way it says %v", schema, err)
		}
		if version, dirty, err := migrations.Version(ctx, migrator); version != reached || dirty || err != nil {
			t.Errorf("with %s in the way the version is %d, dirty %v, %v", schema, version, dirty, err)
		}
		execute("drop schema " + schema)
		if err := migrations.Up(ctx, migrator, nil); err != nil {
			t.Errorf("with %s out of the way: %v", schema, err)
		}
	}
}

// A release runs on the next one's schema, and an orchestrator that runs `migrate up` before each start finds nothing to
// do there.
func TestNewerSchemaIsLeftAlone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := pgtest.Database(t)
	migrator := db.URL(pgtest.RoleMigrator)
	if _, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(ctx, "update manifold_schema set version = 9999"); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(ctx, migrator, nil); err != nil {
		t.Errorf("up: %v", err)
	}
	if err := migrations.Down(ctx, migrator); err == nil || !strings.Contains(err.Error(), "the release that made it") {
		t.Errorf("down: %v", err)
	}
	if version, _, err := migrations.Version(ctx, migrator); version != 9999 || err != nil {
		t.Errorf("the version is %d, %v", version, err)
	}
}

// A person must check a migration that was interrupted.
func TestHalfWay(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := pgtest.Database(t)
	migrator := db.URL(pgtest.RoleMigrator)
	if _, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(ctx, "update manifold_schema set dirty = true"); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(ctx, migrator, nil); err == nil || !strings.Contains(err.Error(), "set dirty to false in the table manifold_schema") {
		t.Errorf("it says %v", err)
	}
}
