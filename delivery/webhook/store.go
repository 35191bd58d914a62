package webhook

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Store keeps webhooks, each in its tenant. Every change notifies all processes (Webhooks.Notice). Errors that a caller
// can act on are *domain.Error. If the webhook does not exist, the code is domain.CodeNotFound.
type Store interface {
	// PutWebhook creates a webhook with its first secret and its group, which begins to read at the position start. If
	// the webhook exists, PutWebhook replaces its definitions and resumes it if it was disabled. If nothing is new,
	// nothing changes.
	PutWebhook(
		ctx context.Context, tenant domain.TenantID, name string, definition domain.WebhookDefinition,
		group domain.GroupDefinition, start int64, secret domain.WebhookSecret,
	) (webhook domain.Webhook, created bool, err error)
	Webhook(ctx context.Context, tenant domain.TenantID, name string) (domain.Webhook, error)
	// Webhooks returns up to limit webhooks after a name, ordered by name.
	Webhooks(ctx context.Context, tenant domain.TenantID, after string, limit int) ([]domain.Webhook, error)
	// SendingWebhooks returns all webhooks of an active tenant, and none of a tenant that is not active.
	SendingWebhooks(ctx context.Context, tenant domain.TenantID) ([]domain.Webhook, error)
	// WebhookTenants returns the tenants that have a webhook, in no particular order.
	WebhookTenants(ctx context.Context) ([]domain.TenantID, error)
	// DeleteWebhook removes a webhook with its groups and everything else that belongs to it.
	DeleteWebhook(ctx context.Context, tenant domain.TenantID, name string) error
	// PauseWebhook pauses or resumes a webhook. It also resumes a disabled webhook.
	PauseWebhook(ctx context.Context, tenant domain.TenantID, name string, paused bool) (domain.Webhook, error)
	// DisableWebhook stops a webhook on behalf of the service, if it still has the revision.
	DisableWebhook(ctx context.Context, tenant domain.TenantID, name string, revision int64, reason string) (disabled bool, err error)

	// AddWebhookSecret adds a secret. Existing secrets expire after expireOld. If that is negative, they stay as they
	// are.
	AddWebhookSecret(ctx context.Context, tenant domain.TenantID, name string, secret domain.WebhookSecret, expireOld time.Duration) (domain.Webhook, error)
	// RemoveWebhookSecret removes a secret. It returns domain.CodeConflict for the last secret that signs.
	RemoveWebhookSecret(ctx context.Context, tenant domain.TenantID, name string, id domain.WebhookSecretID) (domain.Webhook, error)

	WebhookAttempts(ctx context.Context, tenant domain.TenantID, name string, wanted domain.WebhookAttempts) ([]domain.WebhookAttempt, error)
	// AddWebhookAttempts stores attempts, in one statement. If the webhook no longer exists, it stores nothing
	// and returns no error.
	AddWebhookAttempts(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.WebhookAttempt) error
	// WebhookFailing summarizes the failed attempts of a URL, if the newest attempt to reach it has failed. Otherwise
	// it returns nil.
	WebhookFailing(ctx context.Context, tenant domain.TenantID, name, url string) (*domain.WebhookFailing, error)

	// SweepWebhook removes some of a webhook's expired attempts and claims. more means that there may be more to
	// remove.
	SweepWebhook(ctx context.Context, tenant domain.TenantID, name string) (more bool, err error)

	// ClaimWebhookEvents reports for each claim whether it is a duplicate. It is one if an earlier event in the log has
	// the same id, was not a duplicate itself, and was recorded less than window earlier. Other claims are stored for
	// the group. The claims must be in the log's order. Repeated calls return the same result.
	ClaimWebhookEvents(ctx context.Context, tenant domain.TenantID, group string, window time.Duration, claims []domain.WebhookClaim) (duplicate []bool, err error)

	// StartWebhookReplay creates a replay and its group, and removes what is left of the previous one. It returns
	// domain.CodeConflict if a replay is running.
	StartWebhookReplay(ctx context.Context, tenant domain.TenantID, name string, replay domain.WebhookReplay, group domain.GroupDefinition) (domain.Webhook, error)
	// EndWebhookReplay records that the replay started at startedAt is done, if it is still the current one. Its group
	// stays, with its dead letters.
	EndWebhookReplay(ctx context.Context, tenant domain.TenantID, name string, startedAt time.Time) error
	// CancelWebhookReplay removes the replay with its group. It returns domain.CodeNotFound if there is none.
	CancelWebhookReplay(ctx context.Context, tenant domain.TenantID, name string) (domain.Webhook, error)

	// Head returns the head of the tenant's log.
	Head(ctx context.Context, tenant domain.TenantID) (domain.Head, error)
}
