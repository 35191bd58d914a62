package webhook

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// Config configures Webhooks. Store, Events, Groups and Projections are required.
type Config struct {
	Store       *Postgres
	Events      *eventlog.Log
	Groups      *group.Groups
	Projections *projection.Catalog
	Owns        func(domain.TenantID) bool // whether this process runs a tenant's webhooks; nil: all tenants'
	Allow       []netip.Prefix             // addresses that are not public but allowed
	AllowHTTP   bool                       // allows unencrypted http URLs
	Bytes       int                        // of messages in memory, about; above it one per webhook; 0: DefaultBytes
	Version     string                     // of the program, sent to receivers
	// DataSchema returns the dataschema of events in the format CloudEvents: see cloudevents.Encoder. Nil: none.
	DataSchema func(event *domain.Event) string
	Log        *slog.Logger // nil: none
	Observer   Observer
	Tracer     *tracing.Tracer // records a span of each request; nil: none
}

// DefaultBytes is the default of Config.Bytes.
const DefaultBytes = 128 << 20

// Observer has optional functions that report what happens. They are called by many goroutines and must not block.
type Observer struct {
	Attempted func(outcome Outcome, took time.Duration)
	// Delayed is called for each event that is sent for the first time, with the time since it was recorded, less the
	// webhook's delay.
	Delayed func(delay time.Duration)
}

// Webhooks manages the webhooks of all tenants, as far as they concern this process. All methods may be called
// concurrently, and by any number of processes at once. Errors that a caller can act on are *domain.Error.
type Webhooks struct {
	config Config
	sender *sender
	pace   pace

	mu      sync.Mutex
	owners  map[domain.TenantID]bool // tenants that have or may have webhooks; nil: unknown
	noticed map[domain.TenantID]bool // tenants from notices while owners is being read
	tenants map[domain.TenantID]*tenant
	reading chan struct{} // one entry while owners is being read
	// unusable are tenants with a webhook that sends nothing, since its secret could not be decrypted.
	unusable map[domain.TenantID]bool

	stalls  consume.Stalls
	held    atomic.Int64    // bytes of messages in memory
	sending atomic.Int64    // requests under way
	sweeps  chan webhookKey // webhooks that have much to sweep
}

// webhookKey identifies a webhook.
type webhookKey struct {
	tenant domain.TenantID
	name   string
}

// New returns Webhooks. It serves the API's requests at once; Run only sweeps.
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
		tenants: make(map[domain.TenantID]*tenant), unusable: make(map[domain.TenantID]bool), reading: make(chan struct{}, 1), sweeps: make(chan webhookKey, sweepQueue),
	}
}

// Put creates or changes a webhook. A new webhook is returned with its first secret. A webhook that the service has
// disabled resumes. A webhook keeps where it began and its ordering; other values return domain.CodeConflict.
func (w *Webhooks) Put(ctx context.Context, tenant domain.TenantID, name string, definition Definition) (webhook Webhook, created bool, err error) {
	if err := domain.CheckName("name", name); err != nil {
		return Webhook{}, false, err
	}
	from := definition.From
	ordering := definition.Ordering
	if definition, err = w.complete(definition); err != nil {
		return Webhook{}, false, err
	}
	start := int64(1)
	there, err := w.config.Store.Webhook(ctx, tenant, name)
	switch {
	case domain.IsCode(err, domain.CodeNotFound):
		place, err := domain.ParseFrom("from", cmp.Or(from, "end"))
		if err != nil {
			return Webhook{}, false, err
		}
		definition.From = place.String()
		if start, err = w.config.Groups.Place(ctx, tenant, place); err != nil {
			return Webhook{}, false, err
		}
	case err != nil:
		return Webhook{}, false, err
	default:
		definition.From = there.From
		if ordering == "" {
			definition.Ordering = there.Ordering
		}
		if err := checkFixedSettings(there, from, definition); err != nil {
			return Webhook{}, false, err
		}
	}
	group, err := w.groupOf(ctx, tenant, definition)
	if err != nil {
		return Webhook{}, false, err
	}
	webhook, created, err = w.config.Store.PutWebhook(ctx, tenant, name, definition, group, start, newSecret())
	w.Notice(tenant)
	return webhook, created, err
}

// checkFixedSettings refuses changes to the settings that a webhook keeps from its creation.
func checkFixedSettings(there Webhook, from string, wanted Definition) error {
	if from != "" {
		place, err := domain.ParseFrom("from", from)
		if err != nil {
			return err
		}
		if place.String() != there.From {
			return domain.Errorf(domain.CodeConflict, "from", "webhook %q began at %q; from applies only to a new webhook: replay a range, or create another webhook", there.Name, there.From)
		}
	}
	if there.Ordering != wanted.Ordering {
		return domain.Errorf(domain.CodeConflict, "ordering", "webhook %q has the ordering %q and keeps it; create another webhook", there.Name, there.Ordering)
	}
	return nil
}

func newSecret() Secret {
	key := make([]byte, SecretBytes)
	rand.Read(key) // never fails: without randomness it ends the program
	return Secret{ID: NewSecretID(), Key: key}
}

// Get returns a webhook.
func (w *Webhooks) Get(ctx context.Context, tenant domain.TenantID, name string) (Webhook, error) {
	return w.config.Store.Webhook(ctx, tenant, name)
}

// List returns up to limit webhooks after a name, ordered by name.
func (w *Webhooks) List(ctx context.Context, tenant domain.TenantID, after string, limit int) ([]Webhook, error) {
	return w.config.Store.Webhooks(ctx, tenant, after, limit)
}

// Delete removes a webhook with everything that belongs to it. Requests that are running may still arrive.
func (w *Webhooks) Delete(ctx context.Context, tenant domain.TenantID, name string) error {
	err := w.config.Store.DeleteWebhook(ctx, tenant, name)
	w.Notice(tenant)
	return err
}

// Pause stops a webhook and its replay, or resumes them, also if the service has disabled the webhook. Events that are
// due meanwhile wait.
func (w *Webhooks) Pause(ctx context.Context, tenant domain.TenantID, name string, paused bool) (Webhook, error) {
	webhook, err := w.config.Store.PauseWebhook(ctx, tenant, name, paused)
	w.Notice(tenant)
	return webhook, err
}

// AddSecret adds a secret, which is the last one in the returned webhook. The older ones still sign for the duration
// expireOld or, if that is negative, until they are removed.
func (w *Webhooks) AddSecret(ctx context.Context, tenant domain.TenantID, name string, expireOld time.Duration) (Webhook, error) {
	webhook, err := w.config.Store.AddWebhookSecret(ctx, tenant, name, newSecret(), expireOld)
	w.Notice(tenant)
	return webhook, err
}

// RemoveSecret removes a secret, which then no longer signs. It returns domain.CodeConflict for the last secret that
// signs.
func (w *Webhooks) RemoveSecret(ctx context.Context, tenant domain.TenantID, name string, id SecretID) (Webhook, error) {
	webhook, err := w.config.Store.RemoveWebhookSecret(ctx, tenant, name, id)
	w.Notice(tenant)
	return webhook, err
}

// Attempts returns a webhook's attempts, newest first.
func (w *Webhooks) Attempts(ctx context.Context, tenant domain.TenantID, name string, wanted AttemptQuery) ([]Attempt, error) {
	return w.config.Store.WebhookAttempts(ctx, tenant, name, wanted)
}

// Failing returns since when a webhook's URL has accepted nothing. It returns nil if the URL accepted the last request,
// or none was sent. The result comes from the stored attempts, so every process knows it, whichever one sends.
func (w *Webhooks) Failing(ctx context.Context, tenant domain.TenantID, webhook Webhook) (*Failing, error) {
	return w.config.Store.WebhookFailing(ctx, tenant, webhook.Name, webhook.URL)
}

// OpenBreakers returns how many endpoints of webhooks that this process runs have an open breaker.
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
