package limits

import "github.com/manifold-es/manifold/pg"

// Postgres reads and writes plans, the limits of tenants, and ledgers. All methods may be called concurrently. An error
// that a client can act on is a *domain.Error. If the database cannot be reached, its code is domain.CodeUnavailable.
type Postgres struct{ db *pg.DB }

// NewPostgres returns the tables of a database.
func NewPostgres(db *pg.DB) *Postgres { return &Postgres{db} }
