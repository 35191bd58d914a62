package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/embedded"
	"github.com/manifold-es/manifold/migrations"
)

// database is a database with Manifold's schema that only one benchmark uses.
type database struct {
	super       string // the superuser's URL
	distributed bool
}

// createDatabase creates a database on the server that --database-url names, or on a private server. With --distribute
// it is distributed over the nodes of the server's cluster. The run drops it at its end.
func (r *run) createDatabase(ctx context.Context) (*database, error) {
	server := r.databaseURL
	if server == "" {
		var err error
		if server, err = r.startPostgres(ctx); err != nil {
			return nil, err
		}
	}
	name := "manifold_bench_" + strings.ToLower(rand.Text()[:10])
	nodes := []node{{url: server}}
	if r.distribute {
		var err error
		if nodes, err = clusterNodes(ctx, server); err != nil {
			return nil, err
		}
	}
	for _, node := range nodes {
		if err := execute(ctx, node.url, "create database "+name); err != nil {
			return nil, fmt.Errorf("create the benchmark's database: %w", err)
		}
		r.onClose(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			return dropDatabase(ctx, node.url, name)
		})
	}
	at, err := inDatabase(server, name)
	if err != nil {
		return nil, err
	}
	if r.distribute {
		if err := joinNodes(ctx, nodes, name); err != nil {
			return nil, fmt.Errorf("make a cluster of the benchmark's databases: %w", err)
		}
	}
	if err := migrations.Up(ctx, at, nil); err != nil {
		return nil, err
	}
	if r.distribute {
		if err := migrations.Distribute(ctx, at); err != nil {
			return nil, err
		}
	}
	r.db = &database{super: at, distributed: r.distribute}
	return r.db, nil
}

// inDatabase returns the URL of another database on the same server.
func inDatabase(server, name string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", errors.New("--database-url is not a URL such as postgres://postgres@host:5432/postgres")
	}
	u.Path = "/" + name
	return u.String(), nil
}

// dropDatabase drops a database. It retries while Citus's maintenance is in the database.
func dropDatabase(ctx context.Context, server, name string) error {
	for {
		err := execute(ctx, server, "drop database "+name+" with (force)")
		if inUse, ok := errors.AsType[*pgconn.PgError](err); !ok || inUse.Code != "55006" || ctx.Err() != nil {
			return err
		}
	}
}

// node is a server of a Citus cluster.
type node struct {
	url  string // the superuser's
	host string // by which the other nodes know it
	port int
}

// clusterNodes returns the nodes of the cluster whose coordinator server is, the coordinator first.
func clusterNodes(ctx context.Context, server string) ([]node, error) {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, _ := conn.Query(ctx, `
		select nodename, nodeport from pg_dist_node
		where isactive and noderole = 'primary' and exists (select from pg_dist_node where groupid = 0) order by groupid`)
	nodes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n node, err error) {
		return n, row.Scan(&n.host, &n.port)
	})
	if err != nil || len(nodes) < 2 {
		return nil, errors.Join(errors.New("--distribute needs a --database-url of a database on the coordinator of a Citus cluster, with workers"), err)
	}
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	nodes[0].url = server
	for i := range nodes[1:] {
		worker := &nodes[i+1]
		u.Host = net.JoinHostPort(worker.host, strconv.Itoa(worker.port))
		worker.url = u.String()
	}
	return nodes, nil
}

// joinNodes makes a cluster of the databases with a name on the nodes, like the cluster that the nodes already form.
func joinNodes(ctx context.Context, nodes []node, name string) error {
	for _, node := range nodes {
		at, err := inDatabase(node.url, name)
		if err != nil {
			return err
		}
		if err := execute(ctx, at, "create extension citus"); err != nil {
			return err
		}
	}
	at, err := inDatabase(nodes[0].url, name)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, at)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "select citus_set_coordinator_host($1, $2)", nodes[0].host, nodes[0].port); err != nil {
		return err
	}
	for _, worker := range nodes[1:] {
		if _, err := conn.Exec(ctx, "select citus_add_node($1, $2)", worker.host, worker.port); err != nil {
			return err
		}
	}
	return nil
}

// startPostgres starts a private server and returns its superuser's URL.
func (r *run) startPostgres(ctx context.Context) (string, error) {
	folder, err := os.MkdirTemp("", "manifold-bench-")
	if err != nil {
		return "", err
	}
	r.onClose(func() error { return os.RemoveAll(folder) })
	r.log("starting a private PostgreSQL")
	server, err := embedded.Start(ctx, embedded.Config{Dir: folder})
	if err != nil {
		return "", err
	}
	r.onClose(func() error {
		// The data is no longer needed, so the server need not write it to disk.
		now, cancel := context.WithCancel(context.Background())
		cancel()
		err := server.Stop(now)
		if server.Dir != folder {
			err = errors.Join(err, os.RemoveAll(server.Dir))
		}
		return err
	})
	return server.URL("postgres"), nil
}

// execute runs statements over a separate connection.
func execute(ctx context.Context, url string, statements ...string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// as returns the URL under which the superuser acts with a role's privileges and row-level security. It needs no
// login's password, so it does not change the passwords shared with the server's other databases. In a cluster it is
// the login's URL without a password, because nodes connect to one another as the login.
func (db *database) as(role migrations.Role) string {
	if db.distributed {
		u, err := url.Parse(db.super)
		if err != nil {
			panic(err) // createDatabase has made it
		}
		u.User = url.User(string(role))
		return u.String()
	}
	separator := "?"
	if strings.Contains(db.super, "?") {
		separator = "&"
	}
	return db.super + separator + "role=" + string(role)
}

// synced reports whether the server writes a commit to disk before it answers.
func (db *database) synced(ctx context.Context) (bool, error) {
	conn, err := pgx.Connect(ctx, db.super)
	if err != nil {
		return false, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var fsync, commit string
	err = conn.QueryRow(ctx, "select current_setting('fsync'), current_setting('synchronous_commit')").Scan(&fsync, &commit)
	return fsync == "on" && commit != "off", err
}

// defaultDatabase is the name of the log's own database in definitions.
const defaultDatabase = "default"

// databaseFlags adds the flags that say where documents are kept.
func (f *flags) databaseFlags(command *cobra.Command) {
	command.Flags().StringVar(&f.config, "config", "", "the configuration file that has the database of --database")
	command.Flags().StringVar(&f.database, "database", "", `where to keep documents: one of the file's databases, or "default", the benchmark's own`)
}

func (f *flags) databaseName() string { return cmp.Or(f.database, defaultDatabase) }

// documentsDatabase returns the settings of the database for the documents, or none for the benchmark's own database.
func (f *flags) documentsDatabase() (map[string]config.DocumentsDatabase, error) {
	if f.config == "" {
		if f.databaseName() != defaultDatabase {
			return nil, fmt.Errorf("--database %s needs --config, the file that says where it is", f.database)
		}
		return nil, nil
	}
	c, err := config.Load(f.config, os.Environ())
	if err != nil {
		return nil, err
	}
	database, ok := c.Databases[f.database]
	if !ok {
		return nil, fmt.Errorf("%s has no database %q; it has %s", f.config, f.database, strings.Join(slices.Sorted(maps.Keys(c.Databases)), ", "))
	}
	url, err := database.Address()
	if err != nil {
		return nil, fmt.Errorf("databases.%s.url: %w", f.database, err)
	}
	return map[string]config.DocumentsDatabase{f.database: {Driver: database.Driver, URL: url, MaxConns: database.MaxConns}}, nil
}
