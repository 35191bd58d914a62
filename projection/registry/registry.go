// Package registry keeps what Manifold knows of projections: their definitions and versions, builds, rebuilds, faults,
// parked documents, losses and upcasters. Start with New and Registry.
//
// These tables are in one package because a swap changes most of them in one compare-and-set on the projection's row.
package registry

import (
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/pg"
)

// Registry reads and writes the tables of projections and rebuilds. All methods may be called concurrently. An error
// that a client can act on is a *domain.Error. If the database cannot be reached, its code is domain.CodeUnavailable.
type Registry struct {
	db            *pg.DB
	log           *eventlog.Log
	retries       pg.Subscribers[Retry]
	inlineChanges chan struct{} // has an element for each change of inline builds in progress
}

// New returns the Registry of a database. A process needs one: it reports its own changes at once only to itself.
func New(db *pg.DB, log *eventlog.Log) *Registry {
	return &Registry{db: db, log: log, inlineChanges: make(chan struct{}, max(1, db.App.Config().MaxConns/4))}
}
