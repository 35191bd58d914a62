package pgtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/embedded/pgtest"
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
	calls, continues := 0, true
	call := func() bool { calls++; return continues }
	var seen int
	want := func(insert string, wantCalls, wantSeen int, fails bool) {
		t.Helper()
		c := connect()
		for range 2 { // the second time, the statement is prepared
			_, err := c.Exec(t.Context(), insert, 1)
			if fails != (err != nil) {
				t.Errorf("%s: %v", insert, err)
			}
			if fails {
				break
			}
		}
		if err := direct.QueryRow(t.Context(), "select count(*) from public.seen").Scan(&seen); err != nil {
			t.Fatal(err)
		}
		if calls != wantCalls || seen != wantSeen {
			t.Errorf("%s: %d calls and %d rows, want %d and %d", insert, calls, seen, wantCalls, wantSeen)
		}
	}
	network.Before("/* before */", call)
	network.After("/* after */", func() bool {
		if err := direct.QueryRow(t.Context(), "select count(*) from public.seen").Scan(&seen); err != nil || seen == 0 {
			t.Errorf("when it is answered, %d rows are seen: %v", seen, err)
		}
		return call()
	})
	const insert = "insert into public.seen values ($1) "
	want(insert, 0, 2, false)
	want(insert+"/* before */", 2, 4, false)
	want(insert+"/* after */", 4, 6, false)
	continues = false
	want(insert+"/* before */", 5, 6, true)
	want(insert+"/* after */", 6, 7, true)
}
