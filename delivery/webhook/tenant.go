package webhook

import (
	"context"
	"slices"
	"strconv"

	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/domain"
)

// tenant is what this process knows of one tenant's webhooks. Webhooks.mu guards it.
type tenant struct {
	changes   int  // number of notices
	known     bool // the fields below are up to date
	consumers []consume.Consumer
	running   map[string]*consumer // by group
	endpoints map[string]*endpoint // by webhook name and URL
}

// Notice reports that a tenant's webhooks have changed. domain.Everyone means all tenants.
func (w *Webhooks) Notice(id domain.TenantID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id == domain.Everyone {
		w.owners, w.noticed = nil, nil
		for _, t := range w.tenants {
			t.changes++
			t.known = false
		}
		return
	}
	if w.owners != nil {
		w.owners[id] = true
	}
	if w.noticed != nil {
		w.noticed[id] = true
	}
	if t := w.tenants[id]; t != nil {
		t.changes++
		t.known = false
	}
}

// Consumers returns a consumer for each of a tenant's webhooks that is not stopped, and for each running replay. It
// implements consume.Source.
func (w *Webhooks) Consumers(ctx context.Context, id domain.TenantID) ([]consume.Consumer, error) {
	has, err := w.hasWebhooks(ctx, id)
	if !has || err != nil {
		return nil, err
	}
	w.mu.Lock()
	t := w.tenants[id]
	if t == nil {
		t = &tenant{running: make(map[string]*consumer), endpoints: make(map[string]*endpoint)}
		w.tenants[id] = t
	}
	if t.known {
		defer w.mu.Unlock()
		return t.consumers, nil
	}
	changes := t.changes
	w.mu.Unlock()
	found, err := w.config.Store.SendingWebhooks(ctx, id)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	usable := w.usable(id, found)
	if len(usable) < len(found) {
		w.unusable[id] = true
	}
	consumers := w.list(id, t, usable)
	// The webhooks may have changed since they were read. Then the next call reads them again.
	t.known = t.changes == changes
	if t.known && len(found) == 0 && w.tenants[id] == t { // otherwise it was forgotten, and missed a notice
		delete(w.tenants, id)
		delete(w.owners, id)
	}
	return consumers, nil
}

// usable returns the webhooks whose secrets can be decrypted. The others wait, so that no event of theirs fails, until
// a process has the key.
func (w *Webhooks) usable(id domain.TenantID, found []Webhook) []Webhook {
	var usable []Webhook
	for i := range found {
		at := slices.IndexFunc(found[i].Secrets, func(s Secret) bool { return s.Unusable != nil })
		if at < 0 {
			usable = append(usable, found[i])
			continue
		}
		w.config.Log.Error("a webhook sends nothing, because its secret cannot be decrypted", "tenant", id, "webhook", found[i].Name,
			"secret", found[i].Secrets[at].ID, "error", found[i].Secrets[at].Unusable)
	}
	return usable
}

// hasWebhooks reports whether a tenant may have webhooks. The list of tenants with webhooks is read once, so that the
// tenants without any, which may be many, cost no query.
func (w *Webhooks) hasWebhooks(ctx context.Context, id domain.TenantID) (bool, error) {
	for {
		w.mu.Lock()
		known, has := w.owners != nil, w.owners[id]
		w.mu.Unlock()
		if known {
			return has, nil
		}
		if err := w.readTenants(ctx); err != nil {
			return false, err
		}
	}
}

// readTenants reads which tenants have webhooks. One goroutine reads at a time. It includes tenants from notices that
// arrive meanwhile.
func (w *Webhooks) readTenants(ctx context.Context) error {
	select {
	case w.reading <- struct{}{}:
		defer func() { <-w.reading }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	noticed := make(map[domain.TenantID]bool)
	w.mu.Lock()
	known := w.owners != nil
	w.noticed = noticed
	w.mu.Unlock()
	if known {
		return nil // another goroutine has just read it
	}
	found, err := w.config.Store.WebhookTenants(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.noticed == nil {
		return nil // a notice for all tenants has arrived
	}
	w.noticed = nil
	for _, id := range found {
		noticed[id] = true
	}
	w.owners = noticed
	return nil
}

// list creates the consumers of the webhooks that were read. Unchanged consumers stay. w.mu must be held.
func (w *Webhooks) list(id domain.TenantID, t *tenant, found []Webhook) []consume.Consumer {
	before, endpoints := t.running, t.endpoints
	t.running, t.endpoints, t.consumers = make(map[string]*consumer), make(map[string]*endpoint), nil
	for i := range found {
		webhook := found[i]
		at := webhook.Name + " " + webhook.URL
		e := endpoints[at]
		if e == nil {
			e = newEndpoint(&w.pace, &w.sending)
		}
		t.endpoints[at] = e
		if webhook.Stopped() {
			continue
		}
		add := func(replay *Replay, kind string) {
			group := domain.ServiceGroup(kind, webhook.Name)
			c := before[group]
			if c == nil || c.webhook.Revision != webhook.Revision {
				c = newConsumer(w, id, webhook, replay, group, e)
			}
			t.running[group] = c
			t.consumers = append(t.consumers, consume.Consumer{Name: group, Revision: strconv.FormatInt(webhook.Revision, 10), Run: c.run})
		}
		add(nil, domain.ServiceWebhook)
		if webhook.Replay != nil && webhook.Replay.DoneAt.IsZero() {
			add(webhook.Replay, domain.ServiceReplay)
		}
	}
	return t.consumers
}
