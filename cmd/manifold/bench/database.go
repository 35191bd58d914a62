package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/embedded"
	"github.com/manifold-es/manifold/migrations"
)

// database is a database with Manifold's schema that only one benchmark uses.
type database struct {
	super string // the superuser's URL
	close func() error
}

// openDatabase creates a database on the server at serverURL (a superuser's URL), or on a private server if serverURL
// is empty. Closing it drops the database.
func openDatabase(ctx context.Context, serverURL string, progress io.Writer) (*database, error) {
	var undo []func() error
	closeAll := func() error {
		var err error
		for i := range undo {
			err = errors.Join(err, undo[len(undo)-1-i]())
		}
		return err
	}
	if serverURL == "" {
		folder, err := os.MkdirTemp("", "manifold-bench-")
		if err != nil {
			return nil, err
		}
		undo = append(undo, func() error { return os.RemoveAll(folder) })
		fmt.Fprintln(progress, "starting a private PostgreSQL ...")
		server, err := embedded.Start(ctx, embedded.Config{Dir: folder})
		if err != nil {
			return nil, errors.Join(err, closeAll())
		}
		undo = append(undo, func() error {
			// The data is no longer needed, so the server need not write it to disk.
			now, cancel := context.WithCancel(context.Background())
			cancel()
			err := server.Stop(now)
			if server.Dir != folder {
				err = errors.Join(err, os.RemoveAll(server.Dir))
			}
			return err
		})
		serverURL = server.URL("postgres")
	}
	name := "manifold_bench_" + strings.ToLower(rand.Text()[:10])
	if err := execute(ctx, serverURL, "create database "+name); err != nil {
		return nil, errors.Join(fmt.Errorf("make the benchmark's database: %w", err), closeAll())
	}
	undo = append(undo, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return execute(ctx, serverURL, "drop database "+name+" with (force)")
	})
	u, err := url.Parse(serverURL)
	if err != nil {
		return nil, errors.Join(errors.New("--database-url is not a URL such as postgres://postgres@host:5432/postgres"), closeAll())
	}
	u.Path = "/" + name
	if err := migrations.Up(ctx, u.String(), nil); err != nil {
		return nil, errors.Join(err, closeAll())
	}
	return &database{super: u.String(), close: closeAll}, nil
}

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
func (db *database) as(role migrations.Role) string { return asRole(db.super, role) }

func asRole(super string, role migrations.Role) string {
	separator := "?"
	if strings.Contains(super, "?") {
		separator = "&"
	}
	return super + separator + "role=" + string(role)
}

// synced reports whether the server writes a commit to disk before it answers.
func synced(ctx context.Context, url string) (bool, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return false, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var fsync, commit string
	err = conn.QueryRow(ctx, "select current_setting('fsync'), current_setting('synchronous_commit')").Scan(&fsync, &commit)
	return fsync == "on" && commit != "off", err
}
