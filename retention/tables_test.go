package retention

import (
	"context"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/erasure"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/projection/registry"
	"github.com/manifold-es/manifold/seal"
	"github.com/manifold-es/manifold/signing"
	"github.com/manifold-es/manifold/tenant"
)

type (
	groups     = group.Postgres
	aggregates = aggregate.Postgres
	erasing    = erasure.Postgres
)

type tenants = tenant.Tenants

// Tables are the tables that the tests of this package use.
type Tables struct {
	*pg.DB
	*eventlog.Log
	*tenants
	*registry.Registry
	*groups
	*aggregates
	*erasing
	*Postgres
}

func openTables(ctx context.Context, config pg.Config) (*Tables, error) {
	db, err := pg.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	t := &Tables{DB: db, Log: eventlog.New(db, eventlog.Config{})}
	t.tenants, t.Registry = tenant.New(db), registry.New(db, t.Log)
	t.aggregates = aggregate.NewPostgres(db)
	t.groups = group.NewPostgres(db)
	t.erasing = erasure.NewPostgres(db, t.Registry, webhook.NewPostgres(db, t.groups, nil))
	t.Postgres = NewPostgres(db, t.Registry, t.groups, seal.NewPostgres(db, signing.New(db, nil)))
	return t, nil
}

func (t *Tables) Close() {
	t.Log.Close()
	t.groups.Close()
	t.DB.Close()
}
