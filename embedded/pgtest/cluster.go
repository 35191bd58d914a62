package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/migrations"
)

// clusterVariable names the superuser's URLs of a Citus cluster's nodes, separated by commas, the coordinator's first.
// Its nodes need room for more databases: max_worker_processes, max_prepared_transactions and max_connections of 300.
const clusterVariable = "MANIFOLD_TEST_CITUS_URLS"

// cluster is a Citus cluster on which each test has a separate database, copied on every node from a migrated and
// distributed template. The template belongs to this test binary; the logins are shared with other test binaries.
type cluster struct {
	once     sync.Once
	nodes    []*url.URL // the coordinator's first
	template string     // "" until it exists
	err      error
	last     atomic.Int64 // the number of the newest copy
	copying  sync.Mutex   // PostgreSQL copies a template for one session at a time
}

// url returns a login's URL of a database on a node.
func (c *cluster) url(node int, database, user, password string) string {
	at := *c.nodes[node]
	at.User, at.Path = url.UserPassword(user, password), "/"+database
	return at.String()
}

func (c *cluster) clone(t testing.TB, urls string) DB {
	t.Helper()
	c.once.Do(func() { c.err = c.create(urls) })
	if c.err != nil {
		t.Fatalf("pgtest: make the cluster's template: %v", c.err)
	}
	c.copying.Lock()
	defer c.copying.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	name := fmt.Sprintf("%s_%d", c.template, c.last.Add(1))
	// The template's settings are not copied with it.
	err := errors.Join(
		c.onEachNode(ctx, "postgres", fmt.Sprintf("create database %s template %s owner %s", name, c.template, RoleMigrator)),
		c.onEachNode(ctx, "postgres", fmt.Sprintf(`
			insert into pg_db_role_setting
			select copy.oid, s.setrole, s.setconfig from pg_db_role_setting s, pg_database template, pg_database copy
			where s.setdatabase = template.oid and template.datname = '%s' and copy.datname = '%s'`, c.template, name)),
	)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.drop(ctx, name); err != nil {
			t.Errorf("pgtest: drop the test's database: %v", err)
		}
	})
	if err != nil {
		t.Fatalf("pgtest: copy the cluster's template: %v", err)
	}
	return DB{Name: name, passwords: allPasswords(), cluster: c}
}

// create makes the template. Other test binaries make theirs concurrently, and all of them create the logins.
func (c *cluster) create(urls string) error {
	for text := range strings.SplitSeq(urls, ",") {
		node, err := url.Parse(text)
		if err != nil || node.Port() == "" || node.User == nil {
			return fmt.Errorf("%s: write URLs such as postgres://postgres@127.0.0.1:5432, separated by commas", clusterVariable)
		}
		query := node.Query()
		query.Set("sslmode", "disable") // a Network reads what passes
		node.RawQuery = query.Encode()
		c.nodes = append(c.nodes, node)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	lock, err := pgx.Connect(ctx, c.superuser(0, "postgres"))
	if err != nil {
		return err
	}
	defer lock.Close(ctx)
	if _, err := lock.Exec(ctx, "select pg_advisory_lock(hashtext('manifold tests'))"); err != nil {
		return err
	}
	name := "manifold_" + strconv.Itoa(os.Getpid())
	for node := range c.nodes {
		createRole := fmt.Sprintf(`do $$ begin
			if not exists (select from pg_roles where rolname = '%[1]s') then create role %[1]s login createrole password 'migrator''s'; end if; end $$`, RoleMigrator)
		if err := c.execute(ctx, node, "postgres", createRole); err != nil {
			return err
		}
	}
	c.template = name
	if err := c.onEachNode(ctx, "postgres", fmt.Sprintf("create database %s owner %s", name, RoleMigrator)); err != nil {
		return err
	}
	if err := c.onEachNode(ctx, name, "create extension citus"); err != nil {
		return err
	}
	// Fewer shards than by default, but several on each node, so that a copy is made in less time.
	if err := c.execute(ctx, 0, "postgres", fmt.Sprintf("alter database %s set citus.shard_count = %d", name, 2*len(c.nodes))); err != nil {
		return err
	}
	for number, node := range c.nodes {
		add := "select citus_add_node($1, $2)"
		if number == 0 {
			add = "select citus_set_coordinator_host($1, $2)"
		}
		port, err := net.LookupPort("tcp", node.Port())
		if err != nil {
			return err
		}
		if err := c.execute(ctx, 0, name, add, node.Hostname(), port); err != nil {
			return err
		}
	}
	migrator := c.url(0, name, string(RoleMigrator), "migrator's")
	if err := migrations.Up(ctx, migrator, rolePasswords()); err != nil {
		return err
	}
	if err := migrations.Distribute(ctx, migrator); err != nil {
		return err
	}
	// A template is copied only while it has no sessions. Citus's maintenance would have one.
	if err := c.onEachNode(ctx, "postgres", fmt.Sprintf("alter database %s with allow_connections false", name)); err != nil {
		return err
	}
	return c.onEachNode(ctx, "postgres", fmt.Sprintf("select pg_terminate_backend(pid) from pg_stat_activity where datname = '%s'", name))
}

// close drops the template.
func (c *cluster) close() error {
	if c.template == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return c.drop(ctx, c.template)
}

// drop drops a database on every node. Each node's maintenance connects to the others, which would keep the database in
// use; so connections are refused first. It retries while maintenance is still in the database.
func (c *cluster) drop(ctx context.Context, database string) error {
	for {
		refused := c.onEachNode(ctx, "postgres", fmt.Sprintf("update pg_database set datallowconn = false where datname = '%s'", database))
		err := c.onEachNode(ctx, "postgres", "drop database if exists "+database+" with (force)")
		if inUse, ok := errors.AsType[*pgconn.PgError](err); !ok || inUse.Code != "55006" || ctx.Err() != nil {
			return errors.Join(err, refused)
		}
	}
}

// PretendDistributed makes a single server's database look distributed to Manifold, for tests of its checks: it has the
// catalog pg_dist_partition with all tables of the schema manifold but the local ones, and the setting that every
// session needs. Distributing a table only adds it to the catalog. A database on a cluster stays as it is.
func PretendDistributed(t testing.TB, db DB) {
	t.Helper()
	if db.Distributed() {
		return
	}
	session := db.Nodes(t)[0]
	for _, statement := range []string{
		"set allow_system_table_mods = on",
		fmt.Sprintf(`create table pg_catalog.pg_dist_partition as
			select oid::regclass as logicalrelid, 'h' as partmethod, 1 as colocationid
			from pg_class where relnamespace = 'manifold'::regnamespace and relkind = 'r' and relname <> all ('{%s}')`,
			strings.Join(migrations.TablesOf(migrations.Local), ",")),
		"grant select on pg_catalog.pg_dist_partition to public",
		`create function pg_catalog.create_distributed_table(name regclass, by text, colocate_with text) returns void
			language sql security definer as $$ insert into pg_dist_partition values (name, 'h', 1) $$`,
		`create function pg_catalog.create_reference_table(name regclass) returns void
			language sql security definer as $$ insert into pg_dist_partition values (name, 'n', 2) $$`,
		"create function pg_catalog.truncate_local_data_after_distributing_table(name regclass) returns void language sql as ''",
		"alter database " + db.Name + " set citus.propagate_set_commands = 'local'",
	} {
		if _, err := session.Exec(t.Context(), statement); err != nil {
			t.Fatalf("pgtest: %v", err)
		}
	}
}

// NotOnCluster skips a test on a cluster of databases, and says why the test cannot hold there.
func NotOnCluster(t testing.TB, why string) {
	t.Helper()
	if os.Getenv(clusterVariable) != "" {
		t.Skip("not on a cluster: " + why)
	}
}

// superuser returns the superuser's URL of a database on a node.
func (c *cluster) superuser(node int, database string) string {
	at := *c.nodes[node]
	at.Path = "/" + database
	return at.String()
}

// onEachNode executes a statement on every node.
func (c *cluster) onEachNode(ctx context.Context, database, statement string) error {
	for node := range c.nodes {
		if err := c.execute(ctx, node, database, statement); err != nil {
			return err
		}
	}
	return nil
}

// execute executes a statement as the superuser.
func (c *cluster) execute(ctx context.Context, node int, database, statement string, arguments ...any) error {
	conn, err := pgx.Connect(ctx, c.superuser(node, database))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement, arguments...)
	return err
}
