package erasure

import (
	"context"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/projection/registry"
	"github.com/manifold-es/manifold/signing"
	"github.com/manifold-es/manifold/tenant"
)

type groups = group.Postgres

type tenantRows = tenant.Tenants

// Tables are the tables that the tests of this package use.
type Tables struct {
	*pg.DB
	*eventlog.Log
	*tenantRows
	*registry.Registry
	*groups
	*Postgres

	keys *signing.Keys
}

func openTables(ctx context.Context, config pg.Config) (*Tables, error) {
	db, err := pg.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	t := &Tables{DB: db, Log: eventlog.New(db, eventlog.Config{})}
	t.tenantRows, t.Registry = tenant.New(db), registry.New(db, t.Log)
	t.groups = group.NewPostgres(db)
	t.keys = signing.New(db, nil)
	t.Postgres = NewPostgres(db, t.Registry, webhook.NewPostgres(db, t.groups, nil))
	return t, nil
}

func (t *Tables) Close() {
	t.Log.Close()
	t.groups.Close()
	t.DB.Close()
}
