package pg_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	network "github.com/manifold-es/manifold/drivers/drivertest/proxy"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// A database that takes connections and answers nothing holds nobody for long, also who waits without a deadline.
func TestADatabaseThatTakesConnectionsAndIsSilent(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	address, err := url.Parse(db.URL(migrations.RoleApp))
	tablestest.Must(t, err)
	way := network.New(t, address.Host)
	s := openThroughNetwork(t, db, way)
	tenant := tablestest.NewTenant(t, s)

	way.Down() // the connections that there are end
	way.Up()
	way.Hang(network.ToClient)
	ended := make(chan error, 1)
	go func() {
		_, err := s.Head(context.Background(), tenant)
		ended <- err
	}()
	select {
	case err := <-ended:
		tablestest.WantCode(t, err, domain.CodeUnavailable)
	case <-time.After(time.Minute):
		t.Error("a read without a deadline waits for more than a minute")
	}
	way.Heal()
	_, err = s.Head(t.Context(), tenant)
	tablestest.Must(t, err)
}

// openThroughNetwork opens a store whose connections go through a proxy.
func openThroughNetwork(t *testing.T, db pgtest.DB, way *network.Proxy) *tables.Tables {
	t.Helper()
	through := func(role migrations.Role) string {
		address, err := url.Parse(db.URL(role))
		tablestest.Must(t, err)
		address.Host = way.Address()
		return address.String()
	}
	s, err := tables.Open(t.Context(), tables.Config{
		AppURL: through(migrations.RoleApp), SystemURL: through(migrations.RoleSystem), RetentionURL: through(migrations.RoleRetention), MaxConns: 8,
	})
	tablestest.Must(t, err)
	t.Cleanup(s.Close)
	return s
}
