// Package postgres is an outbox in the producer's PostgreSQL: a table beside those that its transactions change. Start
// with Add and Table.
//
//	_, err := tx.Exec(ctx, "update orders set state = 'paid' where id = $1", id)
//	...
//	err = postgres.Add(ctx, tx, outbox.Event{Topic: "order", Key: id, Type: "OrderPaid", Payload: payload})
//	...
//	err = tx.Commit(ctx)
//
// The event exists if and only if the transaction is committed. Rows are ordered by the time when they were added. So
// add an event after the change that it announces. If two transactions change the same row, the second one then adds
// its event when the first has committed, and the order of a stream is the order of the changes.
//
// Table.Schema returns the SQL of the table, for your own migrations, and Table.Create runs it. PostgreSQL 14 to 18 is
// supported.
package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/outbox"
)

// Table is the name of an outbox's table, with or without its schema: lower-case letters, digits and _, with a dot
// between.
type Table string

// DefaultTable is the table that Add and AddSQL use.
const DefaultTable Table = "manifold_outbox"

// Add adds events to DefaultTable in a pgx transaction.
func Add(ctx context.Context, tx pgx.Tx, events ...outbox.Event) error {
	return DefaultTable.Add(ctx, tx, events...)
}

// AddSQL adds events to DefaultTable in a database/sql transaction, with any PostgreSQL driver.
func AddSQL(ctx context.Context, tx *sql.Tx, events ...outbox.Event) error {
	return DefaultTable.AddSQL(ctx, tx, events...)
}

// Add adds events, in their order, in a pgx transaction. For an event that would never be accepted, the error is a
// *domain.Error. An id that already exists violates the table's unique key. After either error, roll the transaction
// back.
func (t Table) Add(ctx context.Context, tx pgx.Tx, events ...outbox.Event) error {
	return t.add(events, func(statement string, args ...any) error {
		_, err := tx.Exec(ctx, statement, args...)
		return err
	})
}

// AddSQL is Add in a database/sql transaction.
func (t Table) AddSQL(ctx context.Context, tx *sql.Tx, events ...outbox.Event) error {
	return t.add(events, func(statement string, args ...any) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	})
}

func (t Table) add(events []outbox.Event, exec func(statement string, args ...any) error) error {
	name, err := t.quoted()
	if err != nil {
		return err
	}
	// One by one: adding many at once is rare, and this way the numbers are in the events' order.
	statement := "insert into " + name + " (event_id, stream, message) values (cast($1 as uuid), $2, cast($3 as json))"
	for i, event := range events {
		row, err := outbox.RowOf(event)
		if err != nil {
			return err
		}
		if err := exec(statement, row.ID, row.Stream, string(row.Message)); err != nil {
			return fmt.Errorf("add event %d of %d to the outbox: %w", i+1, len(events), err)
		}
	}
	return nil
}

// Schema returns the SQL of the table with its indexes. It may be run again: existing objects stay as they are. It is
// "" for an invalid name.
func (t Table) Schema() string {
	name, err := t.quoted()
	if err != nil {
		return ""
	}
	_, last := t.parts()
	return `create table if not exists ` + name + ` (
	sequence     bigint generated always as identity primary key, -- the order in which rows were added
	event_id     uuid not null unique,
	stream       text collate "C" not null,                       -- topic-key; rows of one are published in their order
	message      json not null,                                   -- as POST /v1/publish takes it
	added_at     timestamptz not null default now(),
	due_at       timestamptz not null default now(),              -- not before this; while claimed, when the lease ends
	claim        uuid,                                            -- who has leased it; zeros: it rests after a refusal; null: nobody
	attempts     int not null default 0,                          -- how often it was refused
	reason       text,                                            -- why, the last time
	published_at timestamptz
);
create index if not exists "` + last + `_waiting" on ` + name + ` (sequence) where published_at is null;
create index if not exists "` + last + `_streams" on ` + name + ` (stream, sequence) where published_at is null;
create index if not exists "` + last + `_held" on ` + name + ` (stream) where published_at is null and claim is not null;
create index if not exists "` + last + `_published" on ` + name + ` (published_at) where published_at is not null;
`
}

// Create creates the table if it does not exist.
func (t Table) Create(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := t.quoted(); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, t.Schema()); err != nil {
		return fmt.Errorf("make the outbox %s: %w", t, err)
	}
	return nil
}

func (t Table) parts() (schema, name string) {
	schema, name, both := strings.Cut(string(t), ".")
	if !both {
		return "", schema
	}
	return schema, name
}

// quoted returns the name as SQL quotes it.
func (t Table) quoted() (string, error) {
	schema, name := t.parts()
	if !plain(name) || schema != "" && !plain(schema) || strings.HasPrefix(string(t), ".") {
		return "", fmt.Errorf("%q is not an outbox name: use lower-case letters, digits and _, with the schema before a dot", string(t))
	}
	if schema == "" {
		return `"` + name + `"`, nil
	}
	return `"` + schema + `"."` + name + `"`, nil
}

// plain reports whether a name needs no escapes and, with the suffixes of indexes, fits PostgreSQL's 63 bytes.
func plain(name string) bool {
	if name == "" || len(name) > 50 || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}
