// Package migrations contains the schema of Manifold's own PostgreSQL database as embedded golang-migrate pairs, and
// runs them. Start with Up and Role.
//
// The pairs create the schema "manifold", its tables with row-level security enabled and forced, and the logins of
// Manifold's roles (see Role). A released pair is never edited; each change is a new pair. The previous release must
// run on the new schema, so that processes can be replaced one by one.
package migrations

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/golang-migrate/migrate/v4"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

//go:embed *.sql
var files embed.FS

// Role is one of Manifold's own logins. The roles are separate logins, so a connection can never do what its role is
// not permitted to do. Only RoleViews is reached by SET ROLE.
type Role string

// These are the roles. The migrator, a separate login, runs the migrations and owns the schema. It needs CREATEROLE, or
// the logins and the role manifold_views must exist, with manifold_views granted to manifold_documents.
const (
	RoleApp       Role = "manifold_app"       // for one tenant: reads and appends events, writes the tenant's rows
	RoleSystem    Role = "manifold_system"    // across tenants: reads heads and lists, writes tenants and keys; never events or documents
	RoleDocuments Role = "manifold_documents" // owns the projection tables in PostgreSQL
	RoleRetention Role = "manifold_retention" // removes events, and all data of a deleted tenant

	// RoleViews owns the views over documents, and in a distributed database their tables. It reads the documents of
	// all tenants. It is no login of a process: RoleDocuments becomes it, in a transaction.
	RoleViews Role = "manifold_views"
)

// Roles are the logins that the migrations create.
var Roles = [...]Role{RoleApp, RoleSystem, RoleDocuments, RoleRetention}

// Up brings the database at url (a pgx connection string of the migrator) to the newest version. Then it sets the
// password of each role in passwords; other roles keep theirs. It sends the server a SCRAM-SHA-256 verifier, never
// the password, so the server's log and pg_stat_statements cannot contain one. Several processes may call it
// concurrently: one migrates, and the others wait. A migration that PostgreSQL refuses leaves nothing in place, and
// may be retried. If a long transaction, such as a backup, locks a table that a migration changes, Up tries for five
// minutes, and lets others use the table between its attempts. On a distributed database (see Distribute), each
// migration also distributes the tables that it creates. If the tables come from the dump of a distributed database, Up
// gives them the owners and the row-level security that they have on one PostgreSQL.
func Up(ctx context.Context, url string, passwords map[Role]string) error {
	if err := run(ctx, url, func(m *migrate.Migrate) error { return up(ctx, m) }); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("the migrator cannot connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := undistribute(ctx, conn); err != nil {
		return fmt.Errorf("prepare the tables of a distributed database for one PostgreSQL: %w", err)
	}
	return setPasswords(ctx, conn, passwords)
}

// Down reverts every migration: it removes all tables with their data. The roles stay, since other databases of the
// server may use them. It refuses a distributed database.
func Down(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("the migrator cannot connect: %w", err)
	}
	distributed, err := IsDistributed(ctx, conn)
	if err := errors.Join(err, conn.Close(context.WithoutCancel(ctx))); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if distributed {
		return errors.New("migrate: the database is distributed: drop the database on every node instead")
	}
	return run(ctx, url, func(m *migrate.Migrate) error {
		if version, _, err := m.Version(); err == nil && version > Latest() {
			return fmt.Errorf("the schema is at version %d, and this program knows up to %d: revert it with the release that migrated it", version, Latest())
		}
		return m.Down()
	})
}

// Version returns the schema's version, or 0 if nothing was migrated. dirty means that a migration was interrupted,
// and an operator must check the schema.
func Version(ctx context.Context, url string) (version uint, dirty bool, err error) {
	err = run(ctx, url, func(m *migrate.Migrate) error {
		version, dirty, err = m.Version()
		if errors.Is(err, migrate.ErrNilVersion) {
			return nil
		}
		return err
	})
	return version, dirty, err
}

// Latest returns the version to which Up migrates.
func Latest() uint {
	source, err := iofs.New(files, ".")
	if err != nil {
		panic(err) // the files are embedded, so only a test can see this panic
	}
	defer source.Close()
	latest, _ := source.First()
	for {
		next, err := source.Next(latest)
		if err != nil {
			return latest
		}
		latest = next
	}
}

// Fingerprint returns a hash of all migrations. Up leads to the same schema wherever it is equal.
func Fingerprint() string {
	names, err := files.ReadDir(".")
	if err != nil {
		panic(err) // the files are embedded, so only a test can see this panic
	}
	hash := sha256.New()
	for _, name := range names {
		text, err := files.ReadFile(name.Name())
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(hash, "%s %d\n%s", name.Name(), len(text), text)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

func run(ctx context.Context, url string, do func(*migrate.Migrate) error) (err error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("the migrator's database URL: %w", err)
	}
	db := stdlib.OpenDB(*config)
	defer db.Close()
	if err := db.PingContext(ctx); err != nil {
		return fmt.Errorf("the migrator cannot connect: %w", err)
	}
	source, err := iofs.New(files, ".")
	if err != nil {
		return err
	}
	driver, err := migratepgx.WithInstance(db, &migratepgx.Config{MigrationsTable: "manifold_schema"})
	if err != nil {
		return fmt.Errorf("migrate: %w", plain(err))
	}
	m, err := migrate.NewWithInstance("iofs", lockTimeoutSource{source}, "pgx5", statementDriver{driver, config})
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer m.Close()
	stop := context.AfterFunc(ctx, func() { m.GracefulStop <- true })
	defer stop()
	if err := do(m); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		return fmt.Errorf("migrate: %w", plain(err))
	}
	return ctx.Err()
}

func setPasswords(ctx context.Context, conn *pgx.Conn, passwords map[Role]string) error {
	tx, err := conn.Begin(ctx) // all at once: a process that starts meanwhile sees none of the new passwords, or all
	if err != nil {
		return fmt.Errorf("set the configured passwords: %w", err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after Commit it says so
	for _, role := range Roles {
		password, ok := passwords[role]
		if !ok {
			continue
		}
		verifier, err := scramVerifier(password)
		if err != nil {
			return fmt.Errorf("set the configured password of role %s: %w", role, err)
		}
		// ALTER ROLE takes no parameters. The role is a constant, and a verifier contains no quotes.
		statement := fmt.Sprintf("alter role %s login password '%s'", role, verifier)
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("set the configured password of role %s: %w", role, plain(err))
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("set the configured passwords: %w", plain(err))
	}
	return nil
}
