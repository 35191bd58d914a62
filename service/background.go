package service

import (
	"context"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/erasure"
	"github.com/manifold-es/manifold/limits"
	"github.com/manifold-es/manifold/projection"
)

// startBackground starts the background work.
func (p *Process) startBackground(ctx context.Context) {
	ctx = p.budget.Background(ctx)
	start := func(what string, run func(context.Context) error) {
		p.background.spawn(what, func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				p.fail(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	start("follow changes of keys", func(ctx context.Context) error {
		return p.store.ListenKeys(ctx, p.keys.Forget)
	})
	start("store the last use of keys", p.keys.Run)
	if p.tokens != nil {
		start("load the keys of issuers", p.tokens.Run)
	}
	start("follow changes of limits", func(ctx context.Context) error {
		return p.store.ListenLimits(ctx, p.limits.Notice)
	})
	start("read limits", p.limits.Run)
	start("lease limits", p.limiter.Run)
	start("save usage", p.meter.Run)
	start("record denied requests", p.audit.Run)
	start("follow changes of schemas", func(ctx context.Context) error {
		return p.store.ListenSchemas(ctx, p.noticeSchemas)
	})
	start("follow erasures", func(ctx context.Context) error {
		return p.store.ListenErasures(ctx, p.noticeErasures)
	})
	// Appends make snapshots due in every role.
	start("take snapshots", p.states.Run)
	for name, d := range p.databases {
		p.background.spawn("watch database "+name, func() {
			d.run(ctx, func() {
				p.runner.Answers(name)
				p.rebuilds.Answers(name)
			})
		})
	}
	start("follow logs", func(ctx context.Context) error {
		return p.store.Listen(ctx, p.wake)
	})
	start("maintain webhooks", p.webhooks.Run)
	start("follow changes of webhooks", func(ctx context.Context) error {
		return p.store.ListenWebhooks(ctx, p.noticeWebhooks)
	})
	consumed := make(chan struct{}) // closed when this process's consumers no longer receive from groups
	startLonger := func(what string, run func(context.Context) error) {
		start(what, func(ctx context.Context) error {
			longer, end := context.WithCancel(context.WithoutCancel(ctx))
			defer end()
			defer context.AfterFunc(ctx, func() {
				select {
				case <-consumed:
				case <-p.overdue.Done():
				}
				end()
			})()
			return run(longer)
		})
	}
	startLonger("maintain groups", p.groups.Run) // the groups still record what the consumers have finished
	start("follow changes of groups", func(ctx context.Context) error {
		return p.store.ListenGroups(ctx, p.noticeGroup)
	})
	if !p.config.Role.Worker() {
		close(consumed)
		return
	}
	start("run consumers", func(ctx context.Context) error {
		defer close(consumed)
		return p.consumers.Run(ctx)
	})
	start("follow changes of projections", func(ctx context.Context) error {
		return p.store.ListenProjections(ctx, func() {
			p.runner.Refresh()
			p.rebuilds.Wake()
			p.changes.Refresh()
		})
	})
	start("replay parked documents", projection.NewParkedRetries(projection.ParkedRetriesConfig{Catalog: p.catalog, Owns: p.members.Owns, Log: p.log}).Run)
	start("follow changes of documents", p.changes.Run)
	start("compute totals", p.totals.Run)
	start("list tenants with reports", p.reports.Run)
	start("follow retries of projections", func(ctx context.Context) error {
		return p.store.ListenRetries(ctx, p.runner.Retry)
	})
	// Other processes take over after the consumers here have ended. Until then this process owns the tenants.
	startLonger("follow projections", p.runner.Run)
	startLonger("announce the process", p.members.Run)
	start("work on rebuilds", p.rebuilds.Run)
	start("remove events", p.retention.Run)
	start("count stored events", (&limits.Counter{Store: p.store.LimitTables, Settings: p.limits, Owns: p.members.Owns, Log: p.log}).Run)
	start("retag events", p.schemas.Run)
	start("erase data subjects", p.subjects.Run)
	start("follow changes of retention policies", func(ctx context.Context) error {
		return p.store.ListenRetention(ctx, p.retention.Notice)
	})
	start("seal logs", p.sealer.Run)
	start("encrypt the signing key", p.store.SigningKeys.Run)
	start("erase tenants", erasure.New(erasure.Options{
		Tenants: p.store.TenantTables, Registry: p.store.Registry, Rows: p.store.ErasureTables, Drivers: p.drivers, Heads: p.store.Heads, Erased: p.audit.Erased, Log: p.log,
		Left:       p.leftLogs,
		Checkpoint: p.store.SealTables.Checkpoint, Keys: p.store.SigningKeys, Backups: p.config.Erasure.BackupsKept,
		Settle: time.Minute + p.config.Database.ReplicaLag, // a replica may show an erased log for as long
	}).Run)
	p.background.spawn("deploy projections", func() { p.deployRest(ctx) })
}

// leftLogs implements erasure.Options.Left.
func (p *Process) leftLogs(ctx context.Context) ([]domain.TenantID, error) {
	sealed, err := p.store.SealedLogs(ctx)
	if err != nil {
		return nil, err
	}
	erasing, err := p.store.TenantsWithErasures(ctx)
	return append(sealed, erasing...), err
}

// wake notifies all followers of logs that a log has grown.
func (p *Process) wake(head domain.Head) {
	p.groups.Wake(head)
	if p.config.Role.Worker() {
		p.runner.Wake(head)
		p.consumers.Wake(head)
		p.sealer.Wake(head)
	}
	if p.config.Role.Web() {
		p.tails.Wake(head)
	}
}

// rebalance notifies all parts that work per tenant that this process may own other tenants now.
func (p *Process) rebalance() {
	p.runner.Rebalance()
	p.consumers.Rebalance()
	p.retention.Rebalance()
	p.sealer.Rebalance()
	p.schemas.Rebalance()
}

// noticeSchemas is called when a tenant's schemas have changed, or its stored events were retagged.
func (p *Process) noticeSchemas(tenant domain.TenantID) {
	p.schemas.Notice(tenant)
	p.tails.Forget(tenant)
}

// noticeGroup is called when another process has changed a group. Without a name, any of the tenant's groups may have
// changed.
func (p *Process) noticeGroup(tenant domain.TenantID, name string) {
	p.groups.Notice(tenant, name)
	p.groupChanged(tenant, name)
}

// groupChanged notifies a group's consumers that the group was changed.
func (p *Process) groupChanged(tenant domain.TenantID, name string) {
	if _, _, ours := domain.ParseServiceGroup(name); ours || name == "" {
		p.consumers.Notice(tenant)
	}
}

// noticeWebhooks is called when a tenant's webhooks have changed.
func (p *Process) noticeWebhooks(tenant domain.TenantID) {
	p.webhooks.Notice(tenant)
	p.consumers.Notice(tenant)
}
