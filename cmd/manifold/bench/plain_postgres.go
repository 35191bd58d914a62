package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	plainTable  = "manifold_bench_plain"
	plainTenant = "0190d3a4-5b6c-7def-8123-456789abcdef"
)

// plainPostgres inserts with COPY, into a table with the same columns and key as the driver's.
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
		"create table " + plainTable + ` (tenant_id uuid, build bigint, id text collate "C", version bigint, document jsonb,
			primary key (tenant_id, build, id))`,
	} {
		if _, err := p.conn.Exec(ctx, statement); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	_, err := p.conn.CopyFrom(ctx, pgx.Identifier{plainTable}, []string{"tenant_id", "build", "id", "version", "document"},
		pgx.CopyFromSlice(len(documents), func(i int) ([]any, error) {
			return []any{plainTenant, int64(1), documents[i].ID, int64(i), []byte(documents[i].Document)}, nil
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
	if err := p.conn.QueryRow(ctx, "select document from "+plainTable+" where tenant_id = $1 and build = 1 and id = $2", plainTenant, id).Scan(&document); err != nil {
		return fmt.Errorf("read %q: %w", id, err)
	}
	return nil
}

func (p plainPostgres) close(ctx context.Context) error {
	_, err := p.conn.Exec(ctx, "drop table if exists "+plainTable)
	return errors.Join(err, p.conn.Close(ctx))
}
