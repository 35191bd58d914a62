package webhook

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Store keeps webhooks, each under its tenant. What changes one tells all processes (Webhooks.Notice). Errors that a caller can
// act on are *domain.Error; domain.CodeNotFound: there is no such webhook.
type Store interface {
	// PutWebhook makes a webhook with its group, which then begins to read at the position start, and its first secret; or replaces
	// the definitions of the one that is there, which goes on where it was disabled. Where nothing is new nothing changes.
	PutWebhook(
		ctx context.Context, tenant domain.TenantID, name string, definition domain.WebhookDefinition,
		group domain.GroupDefinition, start int64, secret domain.WebhookSecret,
	) (webhook domain.Webhook, created bool, err error)
	Webhook(ctx context.Context, tenant domain.TenantID, name string) (domain.Webhook, error)
	// Webhooks returns those behind the name after, by name, at most so many.
	Webhooks(ctx context.Context, tenant domain.TenantID, after string, limit int) ([]domain.Webhook, error)
	// SendingWebhooks returns all of a tenant that is active; of another none.
	SendingWebhooks(ctx context.Context, tenant domain.TenantID) ([]domain.Webhook, error)
	// WebhookTenants returns the tenants that have a webhook, in no order.
	WebhookTenants(ctx context.Context) ([]domain.TenantID, error)
	// DeleteWebhook removes a webhook with its groups and all that belongs to it.
	DeleteWebhook(ctx context.Context, tenant domain.TenantID, name string) error
	// PauseWebhook pauses or resumes a webhook; one that is disabled is resumed, too.
	PauseWebhook(ctx context.Context, tenant domain.TenantID, name string, paused bool) (domain.Webhook, error)
	// DisableWebhook stops a webhook on the service's account, where it still has the revision.
	DisableWebhook(ctx context.Context, tenant domain.TenantID, name string, revision int64, reason string) (disabled bool, err error)

	// AddWebhookSecret adds a secret. Those that are there expire after the time expireOld; negative: they stay as they are.
	AddWebhookSecret(ctx context.Context, tenant domain.TenantID, name string, secret domain.WebhookSecret, expireOld time.Duration) (domain.Webhook, error)
	// RemoveWebhookSecret removes a secret; domain.CodeConflict: it is the last one that signs.
	RemoveWebhookSecret(ctx context.Context, tenant domain.TenantID, name string, id domain.WebhookSecretID) (domain.Webhook, error)

	WebhookAttempts(ctx context.Context, tenant domain.TenantID, name string, wanted domain.WebhookAttempts) ([]domain.WebhookAttempt, error)
	// AddWebhookAttempts writes attempts, in one statement. Of a webhook that is gone nothing is written, and that is no error.
	AddWebhookAttempts(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.WebhookAttempt) error
	// WebhookFailing says what the attempts have of a URL where the newest to reach it has failed; nil: it has not.
	WebhookFailing(ctx context.Context, tenant domain.TenantID, name, url string) (*domain.WebhookFailing, error)

	// SweepWebhook removes some of what a webhook keeps too long: old attempts and claims. more: there may be more of it.
	SweepWebhook(ctx context.Context, tenant domain.TenantID, name string) (more bool, err error)

	// ClaimWebhookEvents says of each claim whether it is a duplicate: whether an event before it in the log has the same id, was not
	// a duplicate itself, and was recorded less than the window before it. The others are written down, for the group. The claims are
	// in the log's order, and asking again answers the same.
	ClaimWebhookEvents(ctx context.Context, tenant domain.TenantID, group string, window time.Duration, claims []domain.WebhookClaim) (duplicate []bool, err error)

	// StartWebhookReplay makes a replay and its group, and removes what is left of the last one; domain.CodeConflict: one is
	// under way.
	StartWebhookReplay(ctx context.Context, tenant domain.TenantID, name string, replay domain.WebhookReplay, group domain.GroupDefinition) (domain.Webhook, error)
	// EndWebhookReplay notes that the replay that was started then is done, where it is still the one. Its group stays, with its dead
	// letters.
	EndWebhookReplay(ctx context.Context, tenant domain.TenantID, name string, startedAt time.Time) error
	// CancelWebhookReplay removes the replay with its group; domain.CodeNotFound: there is none.
	CancelWebhookReplay(ctx context.Context, tenant domain.TenantID, name string) (domain.Webhook, error)

	// Head is how far the tenant's log has come.
	Head(ctx context.Context, tenant domain.TenantID) (domain.Head, error)
}
