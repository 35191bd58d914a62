package webhook

import (
	"github.com/manifold-es/manifold/atrest"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/pg"
)

// Postgres reads and writes the tables of webhooks. All methods may be called concurrently. An error that a client can
// act on is a *domain.Error. If the database cannot be reached, its code is domain.CodeUnavailable.
type Postgres struct {
	db     *pg.DB
	groups *group.Postgres
	keys   *atrest.Keys // of the secrets
}

// NewPostgres returns the tables of a database. It encrypts secrets with keys; nil: it stores them as they are.
func NewPostgres(db *pg.DB, groups *group.Postgres, keys *atrest.Keys) *Postgres {
	return &Postgres{db, groups, keys}
}
