package postgres_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/outbox"
	"github.com/manifold-es/manifold/outbox/outboxtest"
	"github.com/manifold-es/manifold/outbox/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// open creates an outbox in a new database.
func open(t testing.TB, table postgres.Table) (*pgxpool.Pool, *postgres.Store) {
	t.Helper()
	pool := pgtest.Database(t).Pool(t, pgtest.RoleSuperuser, 8)
	for range 2 { // the second time it exists
		must(t, table.Create(t.Context(), pool))
	}
	store, err := table.Open(pool)
	must(t, err)
	return pool, store
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, func(t *testing.T) outboxtest.Box {
		pool, store := open(t, postgres.DefaultTable)
		return outboxtest.Box{Store: store, Add: func(ctx context.Context, events ...outbox.Event) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return postgres.Add(ctx, tx, events...) })
		}}
	})
}

// The same with database/sql, in a table of another name.
func TestConformanceBySQL(t *testing.T) {
	t.Parallel()
	const table postgres.Table = "public.box_2"
	outboxtest.Run(t, func(t *testing.T) outboxtest.Box {
		pool, store := open(t, table)
		db := stdlib.OpenDBFromPool(pool)
		t.Cleanup(func() { must(t, db.Close()) })
		return outboxtest.Box{Store: store, Add: func(ctx context.Context, events ...outbox.Event) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if err := table.AddSQL(ctx, tx, events...); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		}}
	})
}

// An event exists if and only if the change that it announces does.
func TestAddIsPartOfTheTransaction(t *testing.T) {
	t.Parallel()
	pool, store := open(t, postgres.DefaultTable)
	_, err := pool.Exec(t.Context(), "create table orders (id text primary key, state text)")
	must(t, err)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { must(t, db.Close()) })
	event := func(key string) outbox.Event {
		return outbox.Event{Topic: "order", Key: key, Payload: json.RawMessage("1")}
	}
	for _, commit := range []bool{false, true} {
		tx, err := pool.Begin(t.Context())
		must(t, err)
		_, err = tx.Exec(t.Context(), "insert into orders values ($1, 'paid')", fmt.Sprint("pgx", commit))
		must(t, err)
		must(t, postgres.Add(t.Context(), tx, event(fmt.Sprint("pgx", commit))))
		if claim, err := store.Claim(t.Context(), 10, time.Hour); err != nil || len(claim.Rows) > 0 {
			t.Errorf("before the end of the transaction there is %+v, %v", claim, err)
		}
		if commit {
			must(t, tx.Commit(t.Context()))
		} else {
			must(t, tx.Rollback(t.Context()))
		}
		plain, err := db.BeginTx(t.Context(), &sql.TxOptions{})
		must(t, err)
		must(t, postgres.AddSQL(t.Context(), plain, event(fmt.Sprint("sql", commit))))
		if commit {
			must(t, plain.Commit())
		} else {
			must(t, plain.Rollback())
		}
	}
	claim, err := store.Claim(t.Context(), 10, time.Hour)
	must(t, err)
	if len(claim.Rows) != 2 || claim.Rows[0].Stream != "order-pgxtrue" || claim.Rows[1].Stream != "order-sqltrue" {
		t.Errorf("there are %+v", claim.Rows)
	}
	var orders int
	must(t, pool.QueryRow(t.Context(), "select count(*) from orders").Scan(&orders))
	if orders != 1 {
		t.Errorf("there are %d orders", orders)
	}
}

// A claim skips the rows that another one is just taking, and the rows after them.
func TestClaimsPassOverOneAnother(t *testing.T) {
	t.Parallel()
	pool, store := open(t, postgres.DefaultTable)
	must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		var events []outbox.Event
		for _, key := range []string{"a", "b", "a", "c"} {
			events = append(events, outbox.Event{Topic: "t", Key: key, Payload: json.RawMessage("1")})
		}
		return postgres.Add(t.Context(), tx, events...)
	}))
	tx, err := pool.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "select from manifold_outbox where stream = 't-a' order by sequence limit 1 for update")
	must(t, err)
	claim, err := store.Claim(t.Context(), 10, time.Hour)
	must(t, err)
	if len(claim.Rows) != 2 || claim.Rows[0].Stream != "t-b" || claim.Rows[1].Stream != "t-c" {
		t.Errorf("the claim has %+v", claim.Rows)
	}
	must(t, tx.Rollback(t.Context()))
	if claim, err = store.Claim(t.Context(), 10, time.Hour); err != nil || len(claim.Rows) != 2 {
		t.Errorf("the next claim has %+v, %v", claim.Rows, err)
	}
}

// A claim from a stream of very many rows is cheap, and when the stream is blocked it barely slows the others, whatever
// statistics the planner has. Otherwise this takes many seconds.
func TestClaimsOfLongStreams(t *testing.T) {
	t.Parallel()
	pool, store := open(t, postgres.DefaultTable)
	claim := func(limit int) outbox.Claim {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		claim, err := store.Claim(ctx, limit, time.Hour)
		must(t, err)
		return claim
	}
	_, err := pool.Exec(t.Context(), `insert into manifold_outbox (event_id, stream, message)
		select gen_random_uuid(), 't-long', '{"topic":"t","key":"long","payload":1}' from generate_series(1, 50000)`)
	must(t, err)
	must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return postgres.Add(t.Context(), tx, outbox.Event{Topic: "t", Key: "free", Payload: json.RawMessage("1")})
	}))
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			_, err := pool.Exec(t.Context(), "analyze manifold_outbox")
			must(t, err)
		}
		long := claim(1000)
		if len(long.Rows) != 1000 || long.Rows[999].Stream != "t-long" {
			t.Errorf("the claim has %d rows", len(long.Rows))
		}
		free := claim(10)
		if len(free.Rows) != 1 || free.Rows[0].Stream != "t-free" {
			t.Errorf("beside it there are %+v", free.Rows)
		}
		must(t, store.Settle(t.Context(), long, outbox.Outcome{}, false))
		must(t, store.Settle(t.Context(), free, outbox.Outcome{}, false))
	}
}

func TestNamesOfTables(t *testing.T) {
	t.Parallel()
	pool, _ := open(t, postgres.DefaultTable)
	for _, table := range []postgres.Table{"", ".", "a.", ".a", "a.b.c", "Outbox", `a"b`, "a b", "1a", "a;drop"} {
		if table.Schema() != "" {
			t.Errorf("%q has a schema", table)
		}
		if _, err := table.Open(pool); err == nil {
			t.Errorf("%q is opened", table)
		}
		if err := table.Create(t.Context(), pool); err == nil {
			t.Errorf("%q is made", table)
		}
		if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return table.Add(t.Context(), tx, outbox.Event{Topic: "t", Payload: json.RawMessage("1")})
		}); err == nil {
			t.Errorf("%q is added to", table)
		}
	}
	// The database's error for an event that already exists is distinct from all others.
	event := outbox.Event{ID: outbox.NewID(), Topic: "t", Payload: json.RawMessage("1")}
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return postgres.Add(t.Context(), tx, event, event) })
	if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "23505" {
		t.Errorf("the same event twice: %v", err)
	}
}
