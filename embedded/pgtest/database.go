package pgtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/embedded"
	"github.com/manifold-es/manifold/migrations"
)

// In addition to the migrations' own roles, these two can connect to a test's database.
const (
	// RoleMigrator owns the database and has migrated it. It is not a superuser, as in a managed PostgreSQL.
	RoleMigrator migrations.Role = "manifold_migrator"
	// RoleSuperuser may do everything, and bypasses row-level security.
	RoleSuperuser migrations.Role = embedded.Superuser
)

// DB is a database with Manifold's schema and no data.
type DB struct {
	Server *embedded.Server
	Name   string

	passwords map[migrations.Role]string
	cluster   *cluster // nil: the database is Server's
}

// Distributed reports whether the database is distributed over the nodes of a Citus cluster. Then Server is nil.
func (db DB) Distributed() bool { return db.cluster != nil }

// URL returns a role's postgres:// URL with the password. Its port survives a restart of the server.
func (db DB) URL(role migrations.Role) string {
	if role == RoleSuperuser && db.Distributed() {
		return db.cluster.superuser(0, db.Name)
	}
	if role == RoleSuperuser {
		return db.Server.URL(db.Name)
	}
	return db.URLAs(string(role), db.passwords[role])
}

// URLAs returns another login's postgres:// URL with the password.
func (db DB) URLAs(user, password string) string {
	if db.Distributed() {
		return db.cluster.url(0, db.Name, user, password)
	}
	return db.Server.URLAs(db.Name, user, password)
}

// Nodes returns a superuser's session on each node of the database: its only server, or the coordinator and the workers
// of a cluster. They are closed when the test ends.
func (db DB) Nodes(t testing.TB) []*pgx.Conn {
	t.Helper()
	urls := []string{db.URL(RoleSuperuser)}
	if db.Distributed() {
		for node := 1; node < len(db.cluster.nodes); node++ {
			urls = append(urls, db.cluster.superuser(node, db.Name))
		}
	}
	sessions := make([]*pgx.Conn, len(urls))
	for i, url := range urls {
		session, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatalf("pgtest: %v", err)
		}
		t.Cleanup(func() { _ = session.Close(context.Background()) })
		if db.Distributed() {
			// Then the catalog lists shards, too.
			if _, err := session.Exec(t.Context(), "set citus.override_table_visibility = off"); err != nil {
				t.Fatalf("pgtest: %v", err)
			}
		}
		sessions[i] = session
	}
	return sessions
}

// sessionWait is how long WaitForLock and WaitForWrite wait.
const sessionWait = time.Minute

// WaitForLock waits until a session waits for a lock in the database. On a cluster that may be on any node.
func (db DB) WaitForLock(t testing.TB) {
	t.Helper()
	db.waitForSession(t, "wait_event_type = 'Lock'")
}

// WaitForWrite waits until a session has written something in a transaction that is still open, as WaitForLock does.
func (db DB) WaitForWrite(t testing.TB) {
	t.Helper()
	db.waitForSession(t, "backend_xid is not null and wait_event = 'ClientRead'")
}

func (db DB) waitForSession(t testing.TB, condition string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sessionWait)
	defer cancel()
	sessions := db.Nodes(t)
	for found, i := false, 0; !found; i++ {
		err := sessions[i%len(sessions)].QueryRow(ctx, `
			select exists (select from pg_stat_activity where datname = current_database() and `+condition+`), pg_sleep(0.005)::text
			`).Scan(&found, new(string))
		if err != nil {
			t.Fatalf("pgtest: wait until a session has %s: %v", condition, err)
		}
	}
}

// Passwords returns the passwords of migrations' roles, as migrations.Up expects them.
func (db DB) Passwords() map[migrations.Role]string {
	return maps.Clone(db.passwords)
}

// closeTimeout is how long a pool waits at the end of its test for connections to be released.
const closeTimeout = 10 * time.Second

// Pool opens a pool of at most maxConns connections for a role, and closes it when the test ends. If the test left a
// connection or transaction open, the test fails instead of waiting forever.
func (db DB) Pool(t testing.TB, role migrations.Role, maxConns int32) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(db.URL(role))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	config.MaxConns = maxConns
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			pool.Close()
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(closeTimeout):
			t.Errorf("pgtest: a connection of %s was not given back", role)
		}
	})
	return pool
}

// Database creates a database for one test on the shared server. When the test ends, it drops the database together
// with the sessions that are still open on it. With the environment variable MANIFOLD_TEST_CITUS_URLS, the database is
// distributed over the nodes of that cluster instead.
func Database(t testing.TB) DB {
	t.Helper()
	if urls := os.Getenv(clusterVariable); urls != "" {
		return process.cluster.clone(t, urls)
	}
	return Plain(t)
}

// Plain is Database on the shared server, also with MANIFOLD_TEST_CITUS_URLS.
func Plain(t testing.TB) DB {
	t.Helper()
	return process.copies.create(t, Server(t))
}

// Migrated creates a database on a private server, which goes with the server.
func Migrated(t testing.TB, server *embedded.Server) DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	const name = "manifold"
	if _, err := conn.Exec(ctx, copyTemplate(name)); err != nil {
		t.Fatalf("pgtest: copy the template: %v", err)
	}
	return DB{Server: server, Name: name, passwords: allPasswords()}
}

// MigrateNew gives the databases that are created on a private server from now on Manifold's schema, so that programs
// that create one have nothing to migrate.
func MigrateNew(t testing.TB, server *embedded.Server) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, statement := range []string{
		"alter database template1 is_template false",
		"drop database template1",
		"create database template1 template " + templateName,
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("pgtest: %s: %v", statement, err)
		}
	}
}

// copies creates and drops copies of the shared server's template.
type copies struct {
	once     sync.Once
	admin    *pgxpool.Pool // the superuser's
	strategy string
	err      error
	last     atomic.Int64 // the number of the newest copy
}

// copyTemplate returns the statement that creates a database with Manifold's schema.
func copyTemplate(name string) string {
	return fmt.Sprintf("create database %s template %s owner %s", name, templateName, RoleMigrator)
}

func (c *copies) open(ctx context.Context, server *embedded.Server) error {
	var err error
	// Two, so that many parallel tests queue for copies instead of competing for the processor.
	if c.admin, err = pgxpool.New(ctx, server.URL("postgres")+"&pool_max_conns=2"); err != nil {
		return err
	}
	// Since version 15, PostgreSQL copies through its log and buffers by default, which takes half as long again.
	return c.admin.QueryRow(ctx, `
		select case when current_setting('server_version_num')::int >= 150000 then ' strategy file_copy' else '' end
		`).Scan(&c.strategy)
}

func (c *copies) create(t testing.TB, server *embedded.Server) DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c.once.Do(func() { c.err = c.open(ctx, server) })
	if c.err != nil {
		t.Fatalf("pgtest: %v", c.err)
	}
	name := fmt.Sprintf("test_%d", c.last.Add(1))
	if _, err := c.admin.Exec(ctx, copyTemplate(name)+c.strategy); err != nil {
		t.Fatalf("pgtest: copy the template: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := c.admin.Exec(ctx, "drop database "+name+" with (force)"); err != nil {
			t.Errorf("pgtest: drop the test's database: %v", err)
		}
	})
	return DB{Server: server, Name: name, passwords: allPasswords()}
}

// migrate creates a database owned by the migrator, and runs the migrations in it as the migrator.
func migrate(ctx context.Context, server *embedded.Server, name string) (err error) {
	passwords := allPasswords()
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	for _, statement := range []string{
		fmt.Sprintf("create role %s login createrole password '%s'", RoleMigrator, strings.ReplaceAll(passwords[RoleMigrator], "'", "''")),
		fmt.Sprintf("create database %s owner %s", name, RoleMigrator),
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := migrations.Up(ctx, server.URLAs(name, string(RoleMigrator), passwords[RoleMigrator]), rolePasswords()); err != nil {
		return err
	}
	for role, password := range passwords {
		secret, err := cheapSecret(password)
		if err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, fmt.Sprintf("alter role %s password '%s'", role, secret)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// allPasswords are the passwords of the migrations' roles and of the migrator.
func allPasswords() map[migrations.Role]string {
	passwords := rolePasswords()
	passwords[RoleMigrator] = "migrator's"
	return passwords
}

func rolePasswords() map[migrations.Role]string {
	passwords := make(map[migrations.Role]string)
	for _, role := range migrations.Roles {
		passwords[role] = strings.TrimPrefix(string(role), "manifold_") + "'s"
	}
	return passwords
}
