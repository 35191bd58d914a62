package service

import (
	"context"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/reactor"
	"github.com/manifold-es/manifold/retention"
)

// wireRetention creates the part that removes events. Before it removes any, it asks groups, projections and
// rebuilds.
func (p *Process) wireRetention(e Extensions) {
	settings := p.config.Retention
	if settings.Grace == 0 {
		settings.Grace = -time.Nanosecond // a configured zero means none at all, but retention's zero means the default
	}
	p.retention = retention.New(retention.Config{
		Store: p.store, Holders: []retention.Holder{p.store, p.catalog}, Owns: p.members.Owns, Log: p.log,
		Grace: settings.Grace, Every: settings.Every, Share: settings.Share,
		Observer: retention.Observer{Removed: p.metrics.EventsRemoved},
		Service: func(group string) bool {
			switch kind, name, _ := domain.ParseServiceGroup(group); kind {
			case domain.ServiceReactor:
				return slices.ContainsFunc(e.Reactors, func(r reactor.Reactor) bool { return r.Name == name })
			case domain.ServiceEgress:
				of, ok := p.config.Egress[name]
				return ok && !of.Remove
			}
			return false
		},
	})
}

// listenRetention listens for changes of retention policies.
func (p *Process) listenRetention(ctx context.Context) error {
	return p.store.ListenRetention(ctx, p.retention.Notice)
}
