package pgtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/embedded"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

func TestMain(m *testing.M) {
	code := pgtest.Run(m)
	if left := folderOfSharedServer; left != "" {
		if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
			fmt.Fprintf(os.Stderr, "the server's folder %s is left behind (%v)\n", left, err)
			code = 1
		}
	}
	if lastingPool != nil && lastingPool.Stat().TotalConns() > 0 {
		fmt.Fprintln(os.Stderr, "a lasting fixture's cleanup has not run")
		code = 1
	}
	os.Exit(code)
}

var folderOfSharedServer string

func TestDatabasesAreSeparateAndMigrated(t *testing.T) {
	one, two := pgtest.Database(t), pgtest.Database(t)
	folderOfSharedServer = one.Server.Dir
	if one.Server != two.Server || one.Server != pgtest.Server(t) {
		t.Error("two databases of one test binary are on two servers")
	}
	if one.Name == two.Name {
		t.Fatalf("both databases are %s", one.Name)
	}
	for _, db := range []pgtest.DB{one, two} {
		version, dirty, err := migrations.Version(t.Context(), db.URL(pgtest.RoleMigrator))
		if err != nil || dirty || version != migrations.Latest() {
			t.Errorf("%s is at version %d, dirty %t (%v)", db.Name, version, dirty, err)
		}
	}
	const tenant = "11111111-1111-1111-1111-111111111111"
	if _, err := one.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), "insert into manifold.tenants (tenant_id, name, state) values ($1, 'only here', 'active')", tenant); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := two.Pool(t, pgtest.RoleSuperuser, 1).QueryRow(t.Context(), "select count(*) from manifold.tenants").Scan(&n); err != nil || n != 0 {
		t.Errorf("the other database has %d of the tenants (%v)", n, err)
	}
}

func TestEveryRoleConnectsAsItself(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	for _, role := range append(migrations.Roles[:], pgtest.RoleMigrator, pgtest.RoleSuperuser) {
		var user string
		var super bool
		err := db.Pool(t, role, 1).QueryRow(t.Context(),
			"select current_user, rolsuper or rolbypassrls from pg_roles where rolname = current_user").Scan(&user, &super)
		if err != nil || user != string(role) || super != (role == pgtest.RoleSuperuser) {
			t.Errorf("%s is %s, above row-level security: %t (%v)", role, user, super, err)
		}
	}
}

func TestDatabaseGoesWithItsTest(t *testing.T) {
	t.Parallel()
	var db pgtest.DB
	t.Run("user", func(t *testing.T) {
		db = pgtest.Database(t)
		conn, err := pgx.Connect(t.Context(), db.URL(migrations.RoleApp))
		if err != nil {
			t.Fatal(err)
		}
		// Left open on purpose: a forgotten session does not keep its database.
		t.Cleanup(func() { go conn.Close(context.Background()) })
	})
	_, err := pgx.Connect(t.Context(), db.URL(migrations.RoleApp))
	var missing *pgconn.PgError
	if !errors.As(err, &missing) || missing.Code != "3D000" {
		t.Errorf("the database is still there: %v", err)
	}
}

func TestManyParallelTests(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			var n int
			db := pgtest.Database(t)
			if err := db.Pool(t, migrations.RoleSystem, 1).QueryRow(t.Context(), "select count(*) from manifold.tenants").Scan(&n); err != nil || n != 0 {
				t.Errorf("%s has %d tenants (%v)", db.Name, n, err)
			}
		})
	}
}

func TestPrivateServerIsKilledAlone(t *testing.T) {
	t.Parallel()
	shared := pgtest.Database(t).Pool(t, migrations.RoleApp, 1)
	for name, options := range map[string]pgtest.Options{
		"memory": {Settings: embedded.Settings{"max_connections": "20"}},
		"disk":   {Durable: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := pgtest.Private(t, options)
			if onDisk := !strings.HasPrefix(server.Dir, "/dev/shm"); options.Durable && !onDisk {
				t.Errorf("a durable server's data is in memory: %s", server.Dir)
			}
			db := pgtest.Migrated(t, server)
			server.Kill()
			if _, err := pgx.Connect(t.Context(), db.URL(migrations.RoleApp)); err == nil {
				t.Error("the killed server answers")
			}
			if err := shared.Ping(t.Context()); err != nil {
				t.Errorf("the shared server was killed, too: %v", err)
			}
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if version, _, err := migrations.Version(t.Context(), db.URL(pgtest.RoleMigrator)); err != nil || version != migrations.Latest() {
				t.Errorf("after the restart the schema's version is %d (%v)", version, err)
			}
		})
	}
}

func TestNewDatabasesMayBeMigrated(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{})
	pgtest.MigrateNew(t, server)
	if err := server.CreateDatabase(t.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	if version, dirty, err := migrations.Version(t.Context(), server.URL("new")); err != nil || dirty || version != migrations.Latest() {
		t.Errorf("a new database is at version %d, dirty %t (%v)", version, dirty, err)
	}
}

// A fixture that tests share is there until the last of them has ended.
func TestLastingFixtures(t *testing.T) {
	t.Run("first", func(t *testing.T) {
		lasting := pgtest.Lasting(t)
		db := pgtest.Database(lasting)
		lastingPool = db.Pool(lasting, migrations.RoleApp, 1)
	})
	if err := lastingPool.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

var lastingPool *pgxpool.Pool
