package webhook

import (
	"context"
	"strconv"

	"github.com/manifold-es/manifold/domain"
)

// Replay sends the events from position from to position to again, both included, with their original ids. The
// webhook's normal deliveries continue. If to is 0, it is the log's head. Replay returns domain.CodeConflict if a
// replay is running.
func (w *Webhooks) Replay(ctx context.Context, tenant domain.TenantID, name string, from, to int64) (Webhook, error) {
	webhook, err := w.config.Store.Webhook(ctx, tenant, name)
	if err != nil {
		return Webhook{}, err
	}
	head, err := w.config.Events.Head(ctx, tenant)
	if err != nil {
		return Webhook{}, err
	}
	if to == 0 {
		to = head.Position
	}
	switch {
	case from < 1:
		return Webhook{}, domain.Errorf(domain.CodeInvalidRequest, "from", "it is %d; positions begin with 1", from)
	case from > head.Position:
		return Webhook{}, domain.Errorf(domain.CodeInvalidRequest, "from", "it is %d, but the log ends with %d; only existing events can be replayed", from, head.Position)
	case to > head.Position:
		return Webhook{}, domain.Errorf(domain.CodeInvalidRequest, "to", "it is %d, but the log ends with %d; only existing events can be replayed", to, head.Position)
	case to < from:
		return Webhook{}, domain.Errorf(domain.CodeInvalidRequest, "to", "it is %d, before from, which is %d", to, from)
	}
	group, err := w.groupOf(ctx, tenant, webhook.Definition)
	if err != nil {
		return Webhook{}, err
	}
	group.From, group.To, group.Delay = strconv.FormatInt(from, 10), to, 0
	webhook, err = w.config.Store.StartWebhookReplay(ctx, tenant, name, Replay{From: from, To: to}, group)
	w.Notice(tenant)
	return webhook, err
}

// CancelReplay ends a webhook's replay, and removes what is left of it. It returns domain.CodeNotFound if there is
// none.
func (w *Webhooks) CancelReplay(ctx context.Context, tenant domain.TenantID, name string) (Webhook, error) {
	webhook, err := w.config.Store.CancelWebhookReplay(ctx, tenant, name)
	w.Notice(tenant)
	return webhook, err
}
