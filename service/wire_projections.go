package service

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/members"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/projection/totals"
	"github.com/manifold-es/manifold/rebuild"
	"github.com/manifold-es/manifold/upcasting"
)

// wireProjections creates the parts that fold events (inline and asynchronously), the rebuilds, and the list of
// processes that share this work.
func (p *Process) wireProjections(e Extensions) error {
	handlers := e.Handlers()
	store := projection.Store{Log: p.store.Log, Registry: p.store.Registry, Tenants: p.store.TenantTables}
	inlineUpcasters, err := upcasting.NewBySystem(p.store.Registry)
	if err != nil {
		return err
	}
	// A configured zero means no time at all, but rebuild's zero means the default.
	keep := max(p.config.RebuildKeep, time.Nanosecond)
	progress, pacing := projection.NewProgress(), projection.NewPacing(p.store.Log.AppendingFor)
	lost := func(id domain.ProjectionID, build int64) { p.rebuilds.Lost(id, build) }
	if !p.config.Role.Worker() {
		lost = nil // this process would not start the rebuild
	}
	p.inline = projection.NewInline(projection.InlineConfig{
		Store: store, Drivers: p.drivers, Handlers: handlers, Upcasters: inlineUpcasters, Log: p.log,
	})
	p.catalog = projection.NewCatalog(projection.CatalogConfig{
		Lost:  lost,
		Store: store, Drivers: p.drivers, Handlers: handlers, Progress: progress, Keep: keep, Log: p.log,
		Outages: p.outage, LogDatabase: p.logDatabase,
		Upcasters: p.upcasters, Requests: p.budget,
		Aggregate: func(ctx context.Context, tenant domain.TenantID, category string) (folding.AggregateRules, error) {
			definition, err := p.states.Definition(ctx, tenant, category)
			return folding.AggregateRules{Initial: definition.Initial, On: definition.On}, err
		},
	})
	p.members = members.New(members.Config{
		Store: p.store.MemberTables, ID: p.id, Name: p.memberName, Version: Version(), Changed: p.rebalance, Log: p.log,
		Egresses: p.reportEgresses,
	})
	var nodes func(tenant domain.TenantID, database string) [2]int32
	if p.store.Distributed {
		nodes = p.nodesOf
	}
	p.runner = projection.NewRunner(projection.RunnerConfig{
		Owns: p.members.Owns, Ceiling: p.config.Limits.ProjectionCeiling,
		Store: store, Drivers: p.drivers, Handlers: handlers, Progress: progress, Outages: p.outage,
		Workers: p.config.Limits.ProjectionWorkers, Upcasters: p.upcasters, Inline: p.inline, Log: p.log,
		Pacing: pacing, Nodes: nodes, Tracer: p.tracer,
		Observer: projection.Observer{
			Turn: func(id domain.ProjectionID) { p.metrics.Turned(id.Name, id.Shared()) },
			Batch: func(b projection.BatchInfo) {
				p.metrics.Projected(b.Projection.Name, b.Projection.Shared(), b.Events)
				p.meter.Of(b.Tenant).Documents(b.Documents)
				p.metrics.Lag(b.Projection.Name, b.Projection.Shared(), b.Lag)
			},
			Fault: func(f domain.Fault) { p.metrics.Faulted(f.Name, f.Shared()) },
			Lost:  lost,
		},
	})
	p.totals = totals.New(totals.Config{Store: p.store.TotalTables, Registry: p.store.Registry, Drivers: p.drivers, Owns: p.members.Owns, Log: p.log})
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
		Store: store, Drivers: p.drivers, Handlers: handlers, Catalog: p.catalog, Outages: p.outage,
		Tenants: p.config.Limits.RebuildWorkers, Keep: keep, Upcasters: p.upcasters, Pacing: pacing, Seeds: p.states.Seeds, Log: p.log,
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
	return nil
}

// inlineFolds are the folds that the store applies during an append. They refer to a pointer because the store is
// opened first, and the folds need the store.
type inlineFolds struct{ inline **projection.Inline }

func (f inlineFolds) Open(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) (eventlog.InlineFolds, []domain.Statement, []domain.TenantBuild, error) {
	folds, checkpoints, gone, err := (*f.inline).Open(ctx, tenant, head, builds)
	if err != nil {
		return nil, nil, nil, err
	}
	return folds, checkpoints, gone, nil
}

func (f inlineFolds) CatchUp(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) ([]domain.TenantBuild, error) {
	return (*f.inline).CatchUp(ctx, tenant, head, builds)
}

// nodesOf returns the nodes of a cluster with a tenant's log, and with its documents in a database.
func (p *Process) nodesOf(tenant domain.TenantID, database string) [2]int32 {
	log := p.store.Node(tenant)
	if d := p.databases[database]; d != nil {
		if documents, distributed := d.node(tenant); distributed {
			return [2]int32{log, documents}
		}
	}
	return [2]int32{log, log}
}
