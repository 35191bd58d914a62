package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
)

// plainSQLServer inserts with the protocol's bulk copy.
type plainSQLServer struct{ db *sql.DB }

func openPlainSQLServer(_ context.Context, url string) (plain, error) {
	db, err := sql.Open("sqlserver", url)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return plainSQLServer{db}, nil
}

func (p plainSQLServer) insert(ctx context.Context, documents []plainDocument) (_ time.Duration, err error) {
	for _, statement := range []string{
		"drop table if exists " + plainTable,
		"create table " + plainTable + " (id varchar(512) collate Latin1_General_100_BIN2_UTF8 primary key, document nvarchar(max))",
	} {
		if _, err := p.db.ExecContext(ctx, statement); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	bulk, err := tx.PrepareContext(ctx, mssql.CopyIn(plainTable, mssql.BulkOptions{Tablock: true}, "id", "document"))
	if err != nil {
		return 0, err
	}
	for _, document := range documents {
		if _, err := bulk.ExecContext(ctx, document.ID, string(document.Document)); err != nil {
			return 0, err
		}
	}
	if _, err := bulk.ExecContext(ctx); err != nil { // no values: sends the collected rows
		return 0, err
	}
	if err := errors.Join(bulk.Close(), tx.Commit()); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}

func (p plainSQLServer) get(ctx context.Context, id string) error {
	var document string
	err := p.db.QueryRowContext(ctx, "select document from "+plainTable+" where id = @p1", mssql.VarChar(id)).Scan(&document)
	if err != nil {
		return fmt.Errorf("read %q: %w", id, err)
	}
	return nil
}

func (p plainSQLServer) close(ctx context.Context) error {
	_, err := p.db.ExecContext(ctx, "drop table if exists "+plainTable)
	return errors.Join(err, p.db.Close())
}
