package webhook

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

const (
	sweepEvery = 10 * time.Minute // for all webhooks of the tenants that this process owns
	sweepAfter = 5000             // attempts of one webhook, which trigger a further sweep
	sweepQueue = 1000             // webhooks waiting for that further sweep
	sweepPause = 100 * time.Millisecond
)

// Run removes expired attempts and claims of webhooks, and encrypts their secrets with the current key, until ctx ends.
func (w *Webhooks) Run(ctx context.Context) error {
	defer w.sender.close()
	w.encryptSecrets(ctx, func(domain.TenantID) bool { return true }) // it does not own any yet
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case one := <-w.sweeps:
			w.sweep(ctx, one.tenant, one.name)
		case <-ticker.C:
			w.sweepAll(ctx)
			w.encryptSecrets(ctx, w.config.Owns)
			w.retryUnusable(ctx)
		}
	}
}

// sweepAll sweeps the webhooks of all tenants that this process owns, and forgets the other tenants.
func (w *Webhooks) sweepAll(ctx context.Context) {
	found, err := w.config.Store.WebhookTenants(ctx)
	if err != nil {
		w.logSweepFailure(ctx, err)
		return
	}
	w.mu.Lock()
	for id := range w.tenants {
		if !w.config.Owns(id) {
			delete(w.tenants, id)
		}
	}
	w.mu.Unlock()
	for _, id := range found {
		if !w.config.Owns(id) {
			continue
		}
		webhooks, err := w.config.Store.Webhooks(ctx, id, "", MaxWebhooks)
		if err != nil {
			w.logSweepFailure(ctx, err)
			return
		}
		for i := range webhooks {
			w.sweep(ctx, id, webhooks[i].Name)
		}
	}
}

// sweep removes a webhook's expired attempts and claims in slices, with pauses.
func (w *Webhooks) sweep(ctx context.Context, id domain.TenantID, name string) {
	for ctx.Err() == nil {
		more, err := w.config.Store.SweepWebhook(ctx, id, name)
		if err != nil {
			w.logSweepFailure(ctx, err)
		}
		if !more || err != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(sweepPause):
		}
	}
}

// logged is of how many tenants encryptSecrets logs what has failed.
const logged = 10

// encryptSecrets encrypts the secrets of tenants' webhooks with the current key.
func (w *Webhooks) encryptSecrets(ctx context.Context, of func(domain.TenantID) bool) {
	if !w.config.Store.HasSecretKeys() {
		return
	}
	stored, failed := 0, 0
	tenants, err := w.config.Store.WebhookTenants(ctx)
	for _, id := range tenants {
		if ctx.Err() != nil {
			return
		}
		if !of(id) {
			continue
		}
		some, bad := w.config.Store.EncryptSecrets(ctx, id)
		stored += some
		if some > 0 {
			bad = errors.Join(bad, w.config.Store.TellWebhooks(ctx, id)) // others may be able to use them now
		}
		if bad != nil {
			if failed++; failed <= logged {
				err = errors.Join(err, bad)
			}
		}
	}
	if err != nil && ctx.Err() == nil {
		w.config.Log.Error("not all secrets of webhooks were encrypted with the current key; keep the old keys", "tenants", failed, "error", err)
	}
	if stored > 0 {
		w.config.Log.Info("secrets of webhooks were encrypted with the current key", "secrets", stored)
	}
}

// retryUnusable has webhooks read again whose secrets could not be decrypted: these may have expired.
func (w *Webhooks) retryUnusable(ctx context.Context) {
	w.mu.Lock()
	unusable := slices.Collect(maps.Keys(w.unusable))
	clear(w.unusable)
	w.mu.Unlock()
	for _, id := range unusable {
		if err := w.config.Store.TellWebhooks(ctx, id); err != nil {
			w.logSweepFailure(ctx, err)
		}
	}
}

func (w *Webhooks) logSweepFailure(ctx context.Context, err error) {
	if ctx.Err() == nil {
		w.config.Log.Warn("old attempts of webhooks were not removed; trying again later", "error", err)
	}
}
