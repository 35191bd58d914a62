package migrations

import (
	"context"
	"io"
	"strings"

	"github.com/golang-migrate/migrate/v4/database"
	"github.com/jackc/pgx/v5"
)

// statementDriver applies a migration in one transaction, one statement per call: a distributed database cannot pass on
// a statement that was sent together with others. The same transaction distributes the tables that the migration
// creates.
type statementDriver struct {
	database.Driver
	config *pgx.ConnConfig
}

// Run applies a migration.
func (d statementDriver) Run(migration io.Reader) error {
	text, err := io.ReadAll(migration)
	if err != nil {
		return err
	}
	ctx := context.Background() // an interruption between two migrations leaves a clean version
	conn, err := pgx.ConnectConfig(ctx, d.config)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return apply(ctx, tx, string(text)) })
	if err != nil {
		return database.Error{OrigErr: err, Err: "migration failed", Query: text}
	}
	return nil
}

func apply(ctx context.Context, tx pgx.Tx, migration string) error {
	distributed, err := IsDistributed(ctx, tx)
	if err != nil {
		return err
	}
	if distributed {
		// Citus would otherwise change shards over several connections at once, and then refuse to change other tables
		// in the same transaction.
		if _, err := tx.Exec(ctx, "set local citus.multi_shard_modify_mode = 'sequential'"); err != nil {
			return err
		}
	}
	for _, statement := range statements(migration) {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if !distributed {
		return nil
	}
	return distribute(ctx, tx)
}

// statements splits a migration. A statement ends with a semicolon at the end of a line, unless that is between two $$.
func statements(migration string) []string {
	var all []string
	var statement strings.Builder
	for line := range strings.Lines(migration) {
		statement.WriteString(line)
		code, _, _ := strings.Cut(line, "--")
		ends := strings.HasSuffix(strings.TrimSpace(code), ";")
		if ends && strings.Count(statement.String(), "$$")%2 == 0 {
			all = append(all, statement.String())
			statement.Reset()
		}
	}
	if rest := statement.String(); strings.TrimSpace(rest) != "" {
		all = append(all, rest)
	}
	return all
}
