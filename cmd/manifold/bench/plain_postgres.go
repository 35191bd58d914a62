package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const plainTable = "manifold_bench_plain"

// plainPostgres inserts by COPY.
type plainPostgres struct{ conn *pgx.Conn }

func openPlainPostgres(ctx context.Context, url string) (plain, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	return plainPostgres{conn}, nil
}

func (p plainPostgres) insert(ctx context.Context, documents []plainDocument) (time.Duration, error) {
	for _, statement := range []string{
		"drop table if exists " + plainTable,
		"create table " + plainTable + ` (id text collate "C" primary key, document jsonb)`,
	} {
		if _, err := p.conn.Exec(ctx, statement); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	_, err := p.conn.CopyFrom(ctx, pgx.Identifier{plainTable}, []string{"id", "document"},
		pgx.CopyFromSlice(len(documents), func(i int) ([]any, error) {
			return []any{documents[i].ID, []byte(documents[i].Document)}, nil
		}))
	took := time.Since(start)
	if err != nil {
		return 0, err
	}
	_, err = p.conn.Exec(ctx, "analyze "+plainTable)
	return took, err
}

func (p plainPostgres) get(ctx context.Context, id string) error {
	var document []byte
	if err := p.conn.QueryRow(ctx, "select document from "+plainTable+" where id = $1", id).Scan(&document); err != nil {
		return fmt.Errorf("read %q: %w", id, err)
	}
	return nil
}

func (p plainPostgres) close(ctx context.Context) error {
	_, err := p.conn.Exec(ctx, "drop table if exists "+plainTable)
	return errors.Join(err, p.conn.Close(ctx))
}
