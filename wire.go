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
	"github.com/manifold-es/manifold/members"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/rebuild"
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
	inlineUpcasters, err := upcasting.New(store.BySystem{Store: p.store})
	if err != nil {
		return err
	}
	if p.states, err = aggregate.New(aggregate.Config{Store: p.store, Upcasters: p.upcasters, Log: p.log}); err != nil {
		return err
	}
	// No time at all is a setting; a zero there asks for the default.
	keep := max(p.config.RebuildKeep, time.Nanosecond)
	progress := projection.NewProgress()
	lost := func(id domain.ProjectionID, build int64) { p.rebuilds.Lost(id, build) }
	if !p.config.Role.Worker() {
		lost = nil // nobody here would start the rebuild
	}
	p.inline = projection.NewInline(projection.InlineConfig{
		Store: p.store, Drivers: p.drivers, Handlers: o.handlers, Upcasters: inlineUpcasters, Log: p.log,
	})
	p.catalog = projection.NewCatalog(projection.CatalogConfig{
		Lost:  lost,
		Store: p.store, Drivers: p.drivers, Handlers: o.handlers, Progress: progress, Keep: keep, Log: p.log,
		Outages: p.outage, LogIn: p.logIn, Upcasters: p.upcasters,
	})
	p.members = members.New(members.Config{
		Store: p.store, Name: p.memberName, Version: Version(), Changed: p.rebalance, Log: p.log,
	})
	p.runner = projection.NewRunner(projection.RunnerConfig{
		Owns: p.members.Owns, Ceiling: p.config.Limits.ProjectionCeiling,
		Store: p.store, Drivers: p.drivers, Handlers: o.handlers, Progress: progress, Outages: p.outage,
		Workers: p.config.Limits.ProjectionWorkers, Upcasters: p.upcasters, Inline: p.inline, Log: p.log,
		Observer: projection.Observer{
			Turn: func(id domain.ProjectionID) { p.metrics.Turned(id.Name, id.Shared()) },
			Batch: func(b projection.BatchInfo) {
				p.metrics.Projected(b.Projection.Name, b.Projection.Shared(), b.Events)
				p.metrics.Lag(b.Projection.Name, b.Projection.Shared(), b.Lag)
			},
			Fault: func(f domain.Fault) { p.metrics.Faulted(f.Name, f.Shared()) },
			Lost:  lost,
		},
	})
	p.metrics.CollectBehind(func(yield func(projection string, positions int64, faulted int)) {
		for _, lag := range p.runner.Lags() {
			yield(lag.Projection, lag.Positions, lag.Faulted)
		}
	})
	if p.config.Role.Worker() {
		p.metrics.CollectMembers(func() (alive, tenants int) { return len(p.members.Alive()), p.runner.Owned() })
	}
	p.metrics.CollectDatabases(func(yield func(database string, up bool)) {
		for name, d := range p.databases {
			_, out := d.Outage()
			yield(name, !out)
		}
	})
	p.rebuilds = rebuild.New(rebuild.Config{
		Store: p.store, Drivers: p.drivers, Handlers: o.handlers, Catalog: p.catalog, Outages: p.outage,
		Tenants: p.config.Limits.RebuildWorkers, Keep: keep, Upcasters: p.upcasters, Log: p.log,
		Yield: func(ctx context.Context, database string) error {
			p.runner.Yield(ctx, database)
			return ctx.Err()
		},
		Observer: rebuild.Observer{
			Progress: func(r domain.Rebuild) {
				p.metrics.Rebuilding(r.Name, r.Shared(), r.EventsDone, r.EventsTotal)
			},
			Ended: func(r domain.Rebuild) { p.metrics.Rebuilt(r.Name, r.Shared(), string(r.State)) },
		},
	})
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
