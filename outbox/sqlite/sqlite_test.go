package sqlite_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/manifold-es/manifold/outbox"
	"github.com/manifold-es/manifold/outbox/outboxtest"
	"github.com/manifold-es/manifold/outbox/sqlite"
)

// open creates an outbox in a new database.
func open(t testing.TB, table sqlite.Table) (*sql.DB, *sqlite.Store) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "shop.db")+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)")
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	for range 2 { // the second time it exists
		must(t, table.Create(t.Context(), db))
	}
	store, err := table.Open(db)
	must(t, err)
	return db, store
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// add adds events in a transaction, with a change of the producer's own.
func add(ctx context.Context, db *sql.DB, change string, commit bool, events ...outbox.Event) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, change)
	if err = errors.Join(err, sqlite.Add(ctx, tx, events...)); err != nil || !commit {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func TestConformance(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, func(t *testing.T) outboxtest.Box {
		db, store := open(t, sqlite.DefaultTable)
		return outboxtest.Box{Store: store, Add: func(ctx context.Context, events ...outbox.Event) error {
			return add(ctx, db, "select 1", true, events...)
		}}
	})
}

// An event exists if and only if the change that it announces does.
func TestAddIsPartOfTheTransaction(t *testing.T) {
	t.Parallel()
	db, store := open(t, sqlite.DefaultTable)
	_, err := db.ExecContext(t.Context(), "create table orders (id text primary key)")
	must(t, err)
	for _, commit := range []bool{false, true} {
		must(t, add(t.Context(), db, fmt.Sprintf("insert into orders values ('%t')", commit), commit,
			outbox.Event{Topic: "order", Key: fmt.Sprint(commit), Payload: json.RawMessage("1")}))
	}
	claim, err := store.Claim(t.Context(), 10, time.Hour)
	must(t, err)
	var order string
	must(t, db.QueryRowContext(t.Context(), "select id from orders").Scan(&order))
	if len(claim.Rows) != 1 || claim.Rows[0].Stream != "order-true" || order != "true" {
		t.Errorf("the order is %s, and the claim has %+v", order, claim.Rows)
	}
}

func TestNamesOfTables(t *testing.T) {
	t.Parallel()
	db, _ := open(t, "box_2")
	for _, table := range []sqlite.Table{"", "a.b", "Outbox", `a"b`, "a b", "1a", "a;drop"} {
		_, err := table.Open(db)
		if table.Schema() != "" || err == nil || table.Create(t.Context(), db) == nil {
			t.Errorf("%q is a name", table)
		}
	}
}

// A stream of very many rows that is blocked barely slows the others.
func TestClaimsBesideABlockedStream(t *testing.T) {
	t.Parallel()
	db, store := open(t, sqlite.DefaultTable)
	_, err := db.ExecContext(t.Context(), `with recursive n(n) as (select 1 union all select n + 1 from n where n < 50000)
		insert into manifold_outbox (event_id, stream, message) select printf('%08d-0000-7000-8000-000000000000', n), 't-long', '{}' from n`)
	must(t, err)
	must(t, add(t.Context(), db, "select 1", true, outbox.Event{Topic: "t", Key: "free", Payload: json.RawMessage("1")}))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	long, err := store.Claim(ctx, 1000, time.Hour)
	must(t, err)
	free, err := store.Claim(ctx, 10, time.Hour)
	must(t, err)
	if len(long.Rows) != 1000 || len(free.Rows) != 1 || free.Rows[0].Stream != "t-free" {
		t.Errorf("the claims have %d rows and %+v", len(long.Rows), free.Rows)
	}
}
