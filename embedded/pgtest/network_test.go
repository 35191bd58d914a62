package pgtest_test

import (
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// A statement that is stopped before the server has no effect. One whose answer is stopped has.
func TestNetworkStopsStatementsAndAnswers(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	direct := db.Pool(t, pgtest.RoleSuperuser, 1)
	if _, err := direct.Exec(t.Context(), "create table public.seen (n int)"); err != nil {
		t.Fatal(err)
	}
	network := pgtest.NewNetwork(t, db)
	connect := func() *pgx.Conn {
		c, err := pgx.Connect(t.Context(), network.URL(t, db, pgtest.RoleSuperuser))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(t.Context()) })
		return c
	}
	var calls atomic.Int64
	var fails atomic.Bool
	call := func() bool { calls.Add(1); return !fails.Load() }
	count := func() (rows int) {
		if err := direct.QueryRow(t.Context(), "select count(*) from public.seen").Scan(&rows); err != nil {
			t.Error(err)
		}
		return rows
	}
	want := func(insert string, wantCalls int64, wantSeen int) {
		t.Helper()
		c := connect()
		for range 2 { // the second time, the statement is prepared
			_, err := c.Exec(t.Context(), insert, 1)
			if fails.Load() != (err != nil) {
				t.Errorf("%s: %v", insert, err)
			}
			if fails.Load() {
				break
			}
		}
		if n, seen := calls.Load(), count(); n != wantCalls || seen != wantSeen {
			t.Errorf("%s: %d calls and %d rows, want %d and %d", insert, n, seen, wantCalls, wantSeen)
		}
	}
	network.Before("/* before */", call)
	network.After("/* after */", func(int) bool {
		if count() == 0 {
			t.Error("when it is answered, no row is seen")
		}
		return call()
	})
	const insert = "insert into public.seen values ($1) "
	want(insert, 0, 2)
	want(insert+"/* before */", 2, 4)
	want(insert+"/* after */", 4, 6)
	fails.Store(true)
	want(insert+"/* before */", 5, 6)
	want(insert+"/* after */", 6, 7)
}

// through opens a pool through a network.
func through(t *testing.T, db pgtest.DB, network *pgtest.Network) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), network.URL(t, db, migrations.RoleSystem))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// insertTenant inserts a tenant in a transaction.
func insertTenant(t *testing.T, pool *pgxpool.Pool) (err error) {
	t.Helper()
	return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "insert into manifold.tenants (tenant_id, name, state) values (gen_random_uuid(), gen_random_uuid()::text, 'active')")
		return err
	})
}

func TestACutBeforeTheCommitLosesTheTransactionAndOneAfterItTheAnswer(t *testing.T) {
	t.Parallel()
	for want, cut := range []func(string, func() bool) pgtest.Fault{pgtest.BeforeCommit, pgtest.AfterCommit} {
		db := pgtest.Database(t)
		network := pgtest.NewNetwork(t, db)
		var cuts atomic.Int64
		network.On(cut("insert into manifold.tenants", func() bool { return cuts.Add(1) == 1 }))
		pool := through(t, db, network)
		if err := insertTenant(t, pool); err == nil {
			t.Fatal("the connection was not cut")
		}
		count := func() (n int) {
			if err := db.Pool(t, pgtest.RoleSuperuser, 1).QueryRow(t.Context(), "select count(*) from manifold.tenants").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := count(); n != want {
			t.Errorf("there are %d tenants; want %d", n, want)
		}
		if err := insertTenant(t, pool); err != nil { // over a new connection
			t.Fatal(err)
		}
		if n := count(); n != want+1 {
			t.Errorf("there are %d tenants; want %d", n, want+1)
		}
	}
}

func TestAStatementIsSeenWithItsParametersAndRows(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	network := pgtest.NewNetwork(t, db)
	seen := make(chan pgtest.Statement, 10)
	network.On(pgtest.Fault{Statement: "generate_series", After: func(s *pgtest.Statement) bool { seen <- *s; return true }})
	pool := through(t, db, network)
	for range 2 {
		rows, err := pool.Query(t.Context(), "select generate_series(1, $1::int)", 7)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pgx.CollectRows(rows, pgx.RowTo[int]); err != nil {
			t.Fatal(err)
		}
		if s := <-seen; s.Rows != 7 || len(s.Params) != 1 || s.Params[0][3] != 7 {
			t.Errorf("it is seen as %+v", s)
		}
	}
}

func TestNothingPassesACutNetwork(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	network := pgtest.NewNetwork(t, db)
	pool := through(t, db, network)
	if err := pool.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	network.CutAfter(2)
	for range 3 {
		_ = pool.Ping(t.Context())
	}
	<-network.Dead()
	if err := pool.Ping(t.Context()); err == nil {
		t.Error("a ping passes")
	}
}
