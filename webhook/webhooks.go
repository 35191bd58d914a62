package webhook

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/subscription"
)

// Config is what Webhooks are made of. Store, Groups and Projections must be set.
type Config struct {
	Store       Store
	Groups      *subscription.Groups
	Projections *projection.Catalog
	Owns        func(domain.TenantID) bool // whether this process looks after a tenant's webhooks; nil: all tenants'
	Allow       []netip.Prefix             // of addresses that are not public and may be sent to
	AllowHTTP   bool                       // URLs may be of http, unencrypted
	Bytes       int                        // of messages that are in memory, about; beyond it each webhook has one; 0: DefaultBytes
	Version     string                     // of the program, as receivers see it
	Log         *slog.Logger               // nil: none
	Observer    Observer
}

// DefaultBytes bounds the messages in memory where nothing else is said.
const DefaultBytes = 128 << 20

// Observer has functions that are called as things happen, from many goroutines, and must not block. Each is optional.
type Observer struct {
	Attempted func(outcome domain.WebhookOutcome, took time.Duration)
	// Delayed is called with each event that is sent for the first time: how long after its recording, and its webhook's delay.
	Delayed func(delay time.Duration)
}

// Webhooks are the webhooks of all tenants, as far as this process has to do with them. All methods may be called concurrently, and
// by any number of processes at once. Errors that a caller can act on are *domain.Error.
type Webhooks struct {
	config Config
	sender *sender
	pace   pace

	mu      sync.Mutex
	with    map[domain.TenantID]bool // the tenants that have webhooks, or may have; nil: not known
	noticed map[domain.TenantID]bool // those of notices, while that is being read
	tenants map[domain.TenantID]*tenant
	reading chan struct{} // has one while it is read

	held    atomic.Int64 // bytes of messages in memory
	sending atomic.Int64 // requests under way
	sweeps  chan named   // webhooks that have much to be swept
}

// named is a webhook's name.
type named struct {
	tenant domain.TenantID
	name   string
}

// New returns Webhooks. Requests of the API are answered at once; Run sweeps.
func New(config Config) *Webhooks {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Owns == nil {
		config.Owns = func(domain.TenantID) bool { return true }
	}
	config.Bytes = cmp.Or(config.Bytes, DefaultBytes)
	return &Webhooks{
		config: config, sender: newSender(config.Allow, config.AllowHTTP, config.Version), pace: newPace(),
		tenants: make(map[domain.TenantID]*tenant), reading: make(chan struct{}, 1), sweeps: make(chan named, sweepQueue),
	}
}

// Put makes a webhook, whose first secret is in what it returns, or changes one, which goes on where the service has disabled it. A webhook
// keeps where it began and its ordering: others are domain.CodeConflict.
func (w *Webhooks) Put(ctx context.Context, tenant domain.TenantID, name string, definition domain.WebhookDefinition) (webhook domain.Webhook, created bool, err error) {
	if err := domain.CheckName("name", name); err != nil {
		return domain.Webhook{}, false, err
	}
	from := definition.From
	ordering := definition.Ordering
	if definition, err = w.complete(definition); err != nil {
		return domain.Webhook{}, false, err
	}
	start := int64(1)
	there, err := w.config.Store.Webhook(ctx, tenant, name)
	switch {
	case domain.IsCode(err, domain.CodeNotFound):
		place, err := domain.ParseFrom("from", cmp.Or(from, "end"))
		if err != nil {
			return domain.Webhook{}, false, err
		}
		definition.From = place.String()
		if start, err = w.config.Groups.Place(ctx, tenant, place); err != nil {
			return domain.Webhook{}, false, err
		}
	case err != nil:
		return domain.Webhook{}, false, err
	default:
		definition.From = there.From
		if ordering == "" {
			definition.Ordering = there.Ordering
		}
		if err := changeable(there, from, definition); err != nil {
			return domain.Webhook{}, false, err
		}
	}
	group, err := w.groupOf(ctx, tenant, definition)
	if err != nil {
		return domain.Webhook{}, false, err
	}
	webhook, created, err = w.config.Store.PutWebhook(ctx, tenant, name, definition, group, start, newSecret())
	w.Notice(tenant)
	return webhook, created, err
}

// changeable refuses what a webhook keeps as it was made.
func changeable(there domain.Webhook, from string, wanted domain.WebhookDefinition) error {
	if from != "" {
		place, err := domain.ParseFrom("from", from)
		if err != nil {
			return err
		}
		if place.String() != there.From {
			return domain.Errorf(domain.CodeConflict, "from", "webhook %q began at %q; from is only for a new webhook: replay a range with this one, or make another", there.Name, there.From)
		}
	}
	if there.Ordering != wanted.Ordering {
		return domain.Errorf(domain.CodeConflict, "ordering", "webhook %q has the ordering %q and keeps it; make another webhook", there.Name, there.Ordering)
	}
	return nil
}

func newSecret() domain.WebhookSecret {
	key := make([]byte, domain.WebhookSecretBytes)
	rand.Read(key) // never fails: it ends the program where the system has no randomness
	return domain.WebhookSecret{ID: domain.NewWebhookSecretID(), Key: key}
}

// Get returns a webhook.
func (w *Webhooks) Get(ctx context.Context, tenant domain.TenantID, name string) (domain.Webhook, error) {
	return w.config.Store.Webhook(ctx, tenant, name)
}

// List returns the webhooks behind the name after, by name, at most so many.
func (w *Webhooks) List(ctx context.Context, tenant domain.TenantID, after string, limit int) ([]domain.Webhook, error) {
	return w.config.Store.Webhooks(ctx, tenant, after, limit)
}

// Delete removes a webhook with all that belongs to it. What is on its way may still arrive.
func (w *Webhooks) Delete(ctx context.Context, tenant domain.TenantID, name string) error {
	err := w.config.Store.DeleteWebhook(ctx, tenant, name)
	w.Notice(tenant)
	return err
}

// Pause stops a webhook, its replay too, or has it go on, also where the service has disabled it. What is due meanwhile waits.
func (w *Webhooks) Pause(ctx context.Context, tenant domain.TenantID, name string, paused bool) (domain.Webhook, error) {
	webhook, err := w.config.Store.PauseWebhook(ctx, tenant, name, paused)
	w.Notice(tenant)
	return webhook, err
}

// AddSecret adds a secret, which is the last of what it returns; the older ones go on signing for the time expireOld, or, where that is
// negative, until they are removed.
func (w *Webhooks) AddSecret(ctx context.Context, tenant domain.TenantID, name string, expireOld time.Duration) (domain.Webhook, error) {
	webhook, err := w.config.Store.AddWebhookSecret(ctx, tenant, name, newSecret(), expireOld)
	w.Notice(tenant)
	return webhook, err
}

// RemoveSecret removes a secret: it signs no more. domain.CodeConflict: it is the last one.
func (w *Webhooks) RemoveSecret(ctx context.Context, tenant domain.TenantID, name string, id domain.WebhookSecretID) (domain.Webhook, error) {
	webhook, err := w.config.Store.RemoveWebhookSecret(ctx, tenant, name, id)
	w.Notice(tenant)
	return webhook, err
}

// Attempts returns a webhook's attempts, newest first.
func (w *Webhooks) Attempts(ctx context.Context, tenant domain.TenantID, name string, wanted domain.WebhookAttempts) ([]domain.WebhookAttempt, error) {
	return w.config.Store.WebhookAttempts(ctx, tenant, name, wanted)
}

// Failing says since when a webhook's URL has taken nothing; nil where it has taken the last, or nothing was sent to it. It is what
// the attempts have, so that every process knows it, whichever sends.
func (w *Webhooks) Failing(ctx context.Context, tenant domain.TenantID, webhook domain.Webhook) (*domain.WebhookFailing, error) {
	return w.config.Store.WebhookFailing(ctx, tenant, webhook.Name, webhook.URL)
}

// Replay sends the events of the positions from to to once more, both included, beside what the webhook sends anyway, and each
// with the id that it had; to is the log's head where it is 0. domain.CodeConflict: a replay is under way.
func (w *Webhooks) Replay(ctx context.Context, tenant domain.TenantID, name string, from, to int64) (domain.Webhook, error) {
	webhook, err := w.config.Store.Webhook(ctx, tenant, name)
	if err != nil {
		return domain.Webhook{}, err
	}
	head, err := w.config.Store.Head(ctx, tenant)
	if err != nil {
		return domain.Webhook{}, err
	}
	if to == 0 {
		to = head.Position
	}
	switch {
	case from < 1:
		return domain.Webhook{}, domain.Errorf(domain.CodeInvalidRequest, "from", "it is %d; positions begin with 1", from)
	case from > head.Position:
		return domain.Webhook{}, domain.Errorf(domain.CodeInvalidRequest, "from", "it is %d, and the log ends with %d; a replay is of events that are there", from, head.Position)
	case to > head.Position:
		return domain.Webhook{}, domain.Errorf(domain.CodeInvalidRequest, "to", "it is %d, and the log ends with %d; a replay is of events that are there", to, head.Position)
	case to < from:
		return domain.Webhook{}, domain.Errorf(domain.CodeInvalidRequest, "to", "it is %d, before from, which is %d", to, from)
	}
	group, err := w.groupOf(ctx, tenant, webhook.WebhookDefinition)
	if err != nil {
		return domain.Webhook{}, err
	}
	group.From, group.To, group.Delay = strconv.FormatInt(from, 10), to, 0
	webhook, err = w.config.Store.StartWebhookReplay(ctx, tenant, name, domain.WebhookReplay{From: from, To: to}, group)
	w.Notice(tenant)
	return webhook, err
}

// CancelReplay ends a webhook's replay, and removes what is left of it. domain.CodeNotFound: there is none.
func (w *Webhooks) CancelReplay(ctx context.Context, tenant domain.TenantID, name string) (domain.Webhook, error) {
	webhook, err := w.config.Store.CancelWebhookReplay(ctx, tenant, name)
	w.Notice(tenant)
	return webhook, err
}

// OpenBreakers is how many endpoints do not answer, of webhooks that this process looks after.
func (w *Webhooks) OpenBreakers() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	open := 0
	for id, t := range w.tenants {
		if !w.config.Owns(id) {
			continue
		}
		for _, e := range t.endpoints {
			if e.open() {
				open++
			}
		}
	}
	return open
}
