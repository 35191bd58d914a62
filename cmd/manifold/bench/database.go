package bench

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/embedded"
	"github.com/manifold-es/manifold/migrations"
)

// database is a database with Manifold's schema that only one benchmark uses.
type database struct{ super string } // the superuser's URL

// createDatabase creates a database on the server that --database-url names, or on a private server. The run drops it
// at its end.
func (r *run) createDatabase(ctx context.Context) (*database, error) {
	server := r.databaseURL
	if server == "" {
		var err error
		if server, err = r.startPostgres(ctx); err != nil {
			return nil, err
		}
	}
	name := "manifold_bench_" + strings.ToLower(rand.Text()[:10])
	if err := execute(ctx, server, "create database "+name); err != nil {
		return nil, fmt.Errorf("create the benchmark's database: %w", err)
	}
	r.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return execute(ctx, server, "drop database "+name+" with (force)")
	})
	u, err := url.Parse(server)
	if err != nil {
		return nil, errors.New("--database-url is not a URL such as postgres://postgres@host:5432/postgres")
	}
	u.Path = "/" + name
	if err := migrations.Up(ctx, u.String(), nil); err != nil {
		return nil, err
	}
	r.db = &database{u.String()}
	return r.db, nil
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
// login's password, so it does not change the passwords shared with the server's other databases.
func (db *database) as(role migrations.Role) string {
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
