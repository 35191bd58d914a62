package service

import (
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/reactor"
)

// wireReactors creates the parts that react to events: calls of the program's own functions, and changes of documents
// published as events.
func (p *Process) wireReactors(e Extensions) (err error) {
	p.reactors, err = reactor.New(reactor.Config{
		Births: p.store, Groups: p.groups, Projections: p.catalog, Reactors: e.Reactors, Called: p.metrics.ReactorCalled, Log: p.log,
	})
	if err != nil {
		return err
	}
	p.changes = reactor.NewChanges(reactor.ChangesConfig{
		Store: p.store, Appends: appendLog{p.store, p.states}, Groups: p.groups, Projections: p.catalog,
		Notice: func(tenant domain.TenantID) { p.consumers.Notice(tenant) },
		Seen: func(id domain.ProjectionID) {
			if p.reactors.Watches(id.Name) {
				p.consumers.Notice(id.Owner)
			}
		},
		Published: func(id domain.ProjectionID, events int) {
			p.metrics.ChangesPublished(id.Name, id.Shared(), events)
		},
		Log: p.log,
	})
	return nil
}
