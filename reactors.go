package manifold

import (
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/reactor"
)

// wireReactors creates the parts that react to events: calls of the program's own functions, and changes of documents
// published as events.
func (p *Process) wireReactors(o settings) (err error) {
	p.reactors, err = reactor.New(reactor.Config{
		Births: p.store, Groups: p.groups, Projections: p.catalog, Reactors: o.reactors, Called: p.metrics.ReactorCalled, Log: p.log,
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

// WithReactor adds a function that is called for events. Select events by categories and types, or name a projection:
// then the function is called after the projection has stored what an event changes in a document. See
// reactor.Definition. The name must be the same in every process of a service. The function may be called more than
// once for an event, so it must be idempotent by the event's id.
func WithReactor(definition reactor.Definition, handler reactor.Handler) Option {
	return func(s *settings) {
		s.reactors = append(s.reactors, reactor.Reactor{Definition: definition, Handler: handler})
	}
}
