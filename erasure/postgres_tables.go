package erasure

import (
	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/projection/registry"
)

// Postgres removes the rows of tenants. All methods may be called concurrently. An error that a client can act on is a
// *domain.Error. If the database cannot be reached, its code is domain.CodeUnavailable.
type Postgres struct {
	db       *pg.DB
	registry *registry.Registry
	webhooks *webhook.Postgres
}

// NewPostgres returns the tables of a database.
func NewPostgres(db *pg.DB, registry *registry.Registry, webhooks *webhook.Postgres) *Postgres {
	return &Postgres{db, registry, webhooks}
}
