package pg_test

import (
	"testing"

	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// On a new connection, statements are prepared once, although a transaction is sent before the first one is answered.
// Where the first fails, so does the second.
func TestTransactionsInFlightOnANewConnection(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	bad := pg.Statement{Name: "bad", SQL: "select 1 / $1::int"}
	zero := [][]byte{{0, 0, 0, 0}}
	for _, fails := range []bool{false, true} {
		s.DB.App.Reset()
		x, err := s.DB.App.Pipeline(t.Context(), tenant)
		tablestest.Must(t, err)
		x.Begin(tenant)
		if fails {
			x.Send(&bad, zero, nil)
		}
		x.Commit()
		first, err := x.SendOff()
		tablestest.Must(t, err)
		x.Begin(tenant)
		x.Commit()
		second, err := x.SendOff()
		tablestest.Must(t, err)
		one, two := x.Receive(first), x.Receive(second)
		switch {
		case !fails && (one != nil || two != nil):
			t.Errorf("the transactions end with %v and %v", one, two)
		case fails && (pg.SQLState(one) != "22012" || pg.SQLState(two) != "25P02"):
			t.Errorf("after a failed transaction the next ends with %v and %v", one, two)
		}
		x.Close()
	}
}
