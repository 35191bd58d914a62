package aggregate

import (
	"context"

	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/projection/registry"
	"github.com/manifold-es/manifold/tenant"
)

type tenants = tenant.Tenants

// Tables are the tables that the tests of this package use.
type Tables struct {
	*pg.DB
	*eventlog.Log
	*tenants
	*registry.Registry
	*Postgres
}

func openTables(ctx context.Context, config pg.Config) (*Tables, error) {
	db, err := pg.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	t := &Tables{DB: db, Log: eventlog.New(db, eventlog.Config{})}
	t.tenants, t.Registry, t.Postgres = tenant.New(db), registry.New(db, t.Log), NewPostgres(db)
	return t, nil
}

func (t *Tables) Close() {
	t.Log.Close()
	t.DB.Close()
}
