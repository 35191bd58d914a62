package service

import (
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/webhook"
)

// wireWebhooks creates the webhooks. A process that only answers requests uses them for queries and test messages.
func (p *Process) wireWebhooks() error {
	allowed, err := p.config.Webhooks.Allowed()
	if err != nil {
		return err
	}
	p.webhooks = webhook.New(webhook.Config{
		Store: p.store, Groups: p.groups, Projections: p.catalog, Owns: p.members.Owns, Allow: allowed, AllowHTTP: p.config.Webhooks.AllowHTTP,
		Version: Version(), Log: p.log,
		Observer: webhook.Observer{
			Attempted: func(outcome domain.WebhookOutcome, took time.Duration) {
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

// noticeWebhooks is called when a tenant's webhooks have changed.
func (p *Process) noticeWebhooks(tenant domain.TenantID) {
	p.webhooks.Notice(tenant)
	p.consumers.Notice(tenant)
}
