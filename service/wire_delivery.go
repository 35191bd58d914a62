package service

import (
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/delivery/reactor"
	"github.com/manifold-es/manifold/delivery/report"
	"github.com/manifold-es/manifold/delivery/tail"
	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/schema"
)

// wireSubscriptions creates the parts that deliver events to followers and through groups.
func (p *Process) wireSubscriptions() {
	p.tails = tail.New(tail.Config{
		Events: p.store.Log, Bytes: int(p.config.Limits.TailBytes), Followers: p.config.Limits.TenantFollowers, Reads: max(1, p.config.Database.MaxConns/4), Log: p.log,
		Observer: tail.Observer{Followers: p.metrics.Followers, Tails: p.metrics.Tails, Read: p.metrics.Polled},
	})
	p.groups = group.New(group.Config{
		Store: p.store.GroupTables, Events: p.store.Log, Bytes: int(p.config.Limits.GroupBytes), Log: p.log, Changed: p.groupChanged,
		Observer: group.Observer{
			Acked: p.metrics.Acked, Expired: p.metrics.Expired, Parked: p.metrics.DeadLettered, Received: p.metrics.Received,
			Delivered: func(tenant domain.TenantID, events int) { p.meter.Of(tenant).Delivered(events) },
			Nacked:    func(action domain.NackAction, events int) { p.metrics.Nacked(string(action), events) },
		},
	})
	p.metrics.CollectEventsInFlight(p.groups.InFlight)
}

// wireWebhooks creates the webhooks. A process that only answers requests uses them for queries and test messages.
func (p *Process) wireWebhooks() error {
	allowed, err := p.config.Webhooks.Allowed()
	if err != nil {
		return err
	}
	p.webhooks = webhook.New(webhook.Config{
		Store: p.store.WebhookTables, Events: p.store.Log, Groups: p.groups, Projections: p.catalog, Owns: p.members.Owns, Allow: allowed, AllowHTTP: p.config.Webhooks.AllowHTTP,
		Version: Version(), Log: p.log, Tracer: p.tracer, DataSchema: schema.VersionURI(p.config.PublicURL),
		Observer: webhook.Observer{
			Attempted: func(outcome webhook.Outcome, took time.Duration) {
				p.metrics.WebhookAttempted(string(outcome), took)
			},
			Delayed: p.metrics.WebhookDelayed,
		},
	})
	if p.config.Role.Worker() {
		p.metrics.CollectWebhookBreakers(p.webhooks.OpenBreakers)
	}
	return nil
}

// wireReactors creates the parts that react to events: calls of the program's own functions, and changes of documents
// published as events.
func (p *Process) wireReactors(e Extensions) (err error) {
	p.reactors, err = reactor.New(reactor.Config{
		Births: p.store.GroupTables, Claims: p.store.WebhookTables, Groups: p.groups, Projections: p.catalog, Reactors: e.Reactors, Called: p.metrics.ReactorCalled, Log: p.log, Tracer: p.tracer,
	})
	if err != nil {
		return err
	}
	p.changes = reactor.NewChanges(reactor.ChangesConfig{
		Registry: p.store.Registry, Births: p.store.GroupTables, Events: p.store.Log, Appends: appender{p.schemas.AppendAnyway, p.store.Log, p.states, p.meter}, Groups: p.groups, Projections: p.catalog,
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

// wireReports creates the part that appends reports. A process that only answers requests uses it to enable them.
func (p *Process) wireReports() {
	p.reports = report.New(report.Config{
		Store: p.store.ReportTables, Append: appender{p.schemas.AppendAnyway, p.store.Log, p.states, p.meter}.Append, Events: p.store.Log, Groups: p.store.GroupTables,
		Webhooks: p.store.WebhookTables, Registry: p.store.Registry, Projections: p.catalog, Quotas: p.limits.QuotasInUse, Reported: p.metrics.Reported, Log: p.log,
		Notice: func(tenant domain.TenantID) { p.consumers.Notice(tenant) },
	})
}
