package bench

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const copied = "tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, metadata, occurred_at, created_at"

// mostCopied bounds the memory for the rows during the copy.
const mostCopied = 500_000

// copyLimit is how many rows per second COPY writes into a table like events, with its indexes and constraints
// but without row-level security. It copies the log's own rows in the order of appending, at most mostCopied, already
// in COPY's format, over one connection in one transaction.
var copyLimit = &limit{"COPY of the same rows", measureCopy}

func measureCopy(ctx context.Context, r *run) (perSecond float64, err error) {
	r.log("measuring the limit: COPY of the same rows")
	conn, err := pgx.Connect(ctx, r.db.super)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var rows bytes.Buffer
	statement := fmt.Sprintf("copy (select %s from manifold.events order by created_at, tenant_id, position limit %d) to stdout", copied, mostCopied)
	if _, err := conn.PgConn().CopyTo(ctx, &rows, statement); err != nil {
		return 0, fmt.Errorf("read the rows for COPY: %w", err)
	}
	for _, statement := range []string{"drop table if exists manifold.bench_copy", "create table manifold.bench_copy (like manifold.events including all)", "checkpoint"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return 0, fmt.Errorf("create a table for COPY: %w", err)
		}
	}
	start := time.Now()
	tag, err := conn.PgConn().CopyFrom(ctx, &rows, "copy manifold.bench_copy ("+copied+") from stdin")
	if err != nil {
		return 0, fmt.Errorf("measure COPY: %w", err)
	}
	took := time.Since(start)
	_, err = conn.Exec(ctx, "drop table manifold.bench_copy")
	return float64(tag.RowsAffected()) / took.Seconds(), err
}

// selectLimit is how many rows per second a plain select reads from the log. It reads all columns that a reader
// needs, as text over one connection, and ignores their content.
var selectLimit = &limit{"SELECT of the same rows", measureSelect}

func measureSelect(ctx context.Context, r *run) (perSecond float64, err error) {
	r.log("measuring the limit: SELECT of the same rows")
	conn, err := pgx.Connect(ctx, r.db.super)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	start := time.Now()
	var rows int64
	result := conn.PgConn().ExecParams(ctx, "select "+copied+" from manifold.events order by tenant_id, position", nil, nil, nil, nil)
	for result.NextRow() {
		rows++
	}
	if _, err := result.Close(); err != nil {
		return 0, fmt.Errorf("measure SELECT: %w", err)
	}
	return float64(rows) / time.Since(start).Seconds(), nil
}
