// Package tenant keeps the tenants: their names, states and shares. Start with New and Tenants.
package tenant

import "github.com/manifold-es/manifold/pg"

// Tenants reads and writes the table of tenants. All methods may be called concurrently. An error that a client can act
// on is a *domain.Error. If the database cannot be reached, its code is domain.CodeUnavailable.
type Tenants struct{ db *pg.DB }

// New returns the tenants of a database.
func New(db *pg.DB) *Tenants { return &Tenants{db} }
