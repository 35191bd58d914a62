package webhook

import (
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/subscription"
)

// Postgres reads and writes the tables of webhooks. All methods may be called concurrently. An error that a client can act on is a
// *domain.Error. If the database cannot be reached, its code is domain.CodeUnavailable.
type Postgres struct {
	db     *pg.DB
	groups *subscription.Postgres
}

// NewPostgres returns the tables of a database.
func NewPostgres(db *pg.DB, groups *subscription.Postgres) *Postgres { return &Postgres{db, groups} }
