package manifold

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/dispatch"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/store"
	"github.com/manifold-es/manifold/subscription"
	"github.com/manifold-es/manifold/upcasting"
)

// appendLog is the store's log, and tells of each append, so that the snapshots that it brings due are taken.
type appendLog struct {
	*store.Store
	states *aggregate.States
}

func (l appendLog) Append(ctx context.Context, tenant domain.TenantID, request domain.Append) (domain.Appended, error) {
	appended, err := l.Store.Append(ctx, tenant, request)
	if err == nil {
		l.states.Appended(tenant, appended)
	}
	return appended, err
}

// wire makes the parts and gives them to one another.
func (p *Process) wire(o settings) error {
	operators := make([]auth.OperatorKey, len(p.config.OperatorKeys))
	var err error
	for i, text := range p.config.OperatorKeys {
		if operators[i], err = auth.ParseOperatorKey(text); err != nil {
			return fmt.Errorf("operatorKey: %w", err)
		}
	}
	if p.keys, err = auth.NewKeys(auth.Config{Store: p.store, Operators: operators}); err != nil {
		return err
	}
	if p.upcasters, err = upcasting.New(p.store); err != nil {
		return err
	}
	if p.states, err = aggregate.New(aggregate.Config{Store: p.store, Upcasters: p.upcasters, Log: p.log}); err != nil {
		return err
	}
	if err := p.wireProjections(o); err != nil {
		return err
	}
	p.wireSubscriptions()
	p.wireRetention(o)
	if err := p.wireWebhooks(); err != nil {
		return err
	}
	if err := p.wireReactors(o); err != nil {
		return err
	}
	sources, err := p.wireEgress()
	if err != nil {
		return err
	}
	sources = append(sources, p.webhooks, p.reactors, p.changes) // of the consumers that the service is
	p.consumers = dispatch.New(dispatch.Config{Store: p.store, Sources: sources, Owns: p.members.Owns, Log: p.log})
	return p.wireAPI()
}

// wireSubscriptions makes what delivers events: to followers, and by groups.
func (p *Process) wireSubscriptions() {
	p.tails = subscription.NewTails(subscription.TailsConfig{
		Store: p.store, Bytes: int(p.config.Limits.TailBytes), Followers: p.config.Limits.TenantFollowers, Reads: max(1, p.config.Database.MaxConns/4), Log: p.log,
		Observer: subscription.TailsObserver{Followers: p.metrics.Followers, Tails: p.metrics.Tails, Read: p.metrics.Polled},
	})
	p.groups = subscription.NewGroups(subscription.GroupsConfig{
		Store: p.store, Bytes: int(p.config.Limits.GroupBytes), Log: p.log, Changed: p.groupChanged,
		Observer: subscription.GroupObserver{
			Acked: p.metrics.Acked, Expired: p.metrics.Expired, Parked: p.metrics.DeadLettered, Received: p.metrics.Received,
			Nacked: func(action domain.NackAction, events int) { p.metrics.Nacked(string(action), events) },
		},
	})
	p.metrics.CollectEventsInFlight(p.groups.InFlight)
}

// wireAPI makes what answers requests.
func (p *Process) wireAPI() (err error) {
	p.api, err = api.New(api.Config{
		Log: appendLog{p.store, p.states}, Streams: p.store, Keys: p.keys, Tenants: p.store, Members: memberList{p.store}, Aggregates: p.states,
		Projections: p.catalog, Rebuilds: p.rebuilds, Upcasters: p.upcasters,
		Tickets: p.store, Follower: p.tails, Groups: p.groups, Webhooks: p.webhooks, Retention: p.retention,
		Ready: p.checks, Metrics: p.metrics.Handler(), Logger: p.log,
		Observer: api.Observer{
			Request: p.metrics.Request, Read: p.metrics.Read, Imported: p.metrics.Imported, Published: p.metrics.Published, Followed: p.metrics.Followed, Delivered: p.metrics.Delivered,
		},
	})
	if err != nil {
		return err
	}
	p.server = &http.Server{
		Handler:           p.metrics.CountInFlight(p.api.Handler()),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(p.log.Handler(), slog.LevelDebug), // clients that break off: no fault of ours
		BaseContext:       func(net.Listener) context.Context { return p.requests },
	}
	if !p.config.Role.Web() {
		p.server.Handler = onlyHealth(p.server.Handler)
	}
	return nil
}
