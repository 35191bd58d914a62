// Package sqlite is an outbox in the producer's SQLite: a table beside those that its transactions change. Start with
// Add and Table. It works with any database/sql driver of SQLite 3.38 (2022) or later.
//
//	_, err := tx.ExecContext(ctx, "update orders set state = 'paid' where id = ?", id)
//	...
//	err = sqlite.Add(ctx, tx, outbox.Event{Topic: "order", Key: id, Type: "OrderPaid", Payload: payload})
//	...
//	err = tx.Commit()
//
// The event exists if and only if the transaction is committed. SQLite has one writer at a time, so rows are in the
// order of the transactions. While a producer writes, a drainer waits for as long as its connection's busy timeout
// says, and then tries again later: set one of some seconds, and use write-ahead logging.
package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"

	"github.com/manifold-es/manifold/outbox"
)

// Table is the name of an outbox's table: lower-case letters, digits and _.
type Table string

// DefaultTable is the table that Add uses.
const DefaultTable Table = "manifold_outbox"

// Add adds events to DefaultTable.
func Add(ctx context.Context, tx *sql.Tx, events ...outbox.Event) error {
	return DefaultTable.Add(ctx, tx, events...)
}

// Add adds events, in their order, in a transaction. For an event that would never be accepted, the error is a
// *domain.Error. An id that already exists violates the table's unique key. After either error, roll the transaction
// back.
func (t Table) Add(ctx context.Context, tx *sql.Tx, events ...outbox.Event) error {
	name, err := t.quoted()
	if err != nil {
		return err
	}
	for i, event := range events {
		row, err := outbox.RowOf(event)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "insert into "+name+" (event_id, stream, message) values (?, ?, ?)", row.ID, row.Stream, string(row.Message)); err != nil {
			return fmt.Errorf("add event %d of %d to the outbox: %w", i+1, len(events), err)
		}
	}
	return nil
}

// Schema returns the SQL of the table with its indexes. It may be run again: existing objects stay as they are. It is
// "" for an invalid name. Times are milliseconds since 1970.
func (t Table) Schema() string {
	name, err := t.quoted()
	if err != nil {
		return ""
	}
	return `create table if not exists ` + name + ` (
	sequence     integer primary key autoincrement,               -- the order in which rows were added
	event_id     text not null unique check (length(event_id) = 36),
	stream       text not null,                                   -- topic-key; rows of one are published in their order
	message      text not null check (json_valid(message)),       -- as POST /v1/publish takes it
	added_at     integer not null default (cast((julianday('now') - 2440587.5) * 86400000 as integer)),
	due_at       integer not null default 0,                      -- not before this; while claimed, when the lease ends
	claim        text,                                            -- who has leased it; '': it rests after a refusal; null: nobody
	attempts     integer not null default 0,                      -- how often it was refused
	reason       text,                                            -- why, the last time
	published_at integer
);
create index if not exists "` + string(t) + `_waiting" on ` + name + ` (sequence) where published_at is null;
create index if not exists "` + string(t) + `_held" on ` + name + ` (stream) where published_at is null and claim is not null;
create index if not exists "` + string(t) + `_published" on ` + name + ` (published_at) where published_at is not null;
`
}

// Create creates the table if it does not exist.
func (t Table) Create(ctx context.Context, db *sql.DB) error {
	if _, err := t.quoted(); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, t.Schema()); err != nil {
		return fmt.Errorf("make the outbox %s: %w", t, err)
	}
	return nil
}

var tableName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,99}$`)

// quoted returns the name as SQL quotes it.
func (t Table) quoted() (string, error) {
	if !tableName.MatchString(string(t)) {
		return "", fmt.Errorf("%q is not an outbox name: use lower-case letters, digits and _", string(t))
	}
	return `"` + string(t) + `"`, nil
}
