package retention

import (
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/projection/registry"
	"github.com/manifold-es/manifold/seal"
)

// Postgres reads and writes the tables of retention, and removes events. All methods may be called concurrently. An
// error that a client can act on is a *domain.Error. If the database cannot be reached, its code is
// domain.CodeUnavailable.
type Postgres struct {
	db       *pg.DB
	registry *registry.Registry
	groups   *group.Postgres
	seals    *seal.Postgres
}

// NewPostgres returns the tables of a database. What retention removes has receipts in seals.
func NewPostgres(db *pg.DB, registry *registry.Registry, groups *group.Postgres, seals *seal.Postgres) *Postgres {
	return &Postgres{db, registry, groups, seals}
}
