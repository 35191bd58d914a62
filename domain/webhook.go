package domain

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// A webhook sends events of a tenant's log to a URL. It has a row and a group, ServiceGroup("webhook", name), whose
// consumer is the service. A replay of a range has an additional group, ServiceGroup("replay", name).

// WebhookFormat is the format of the body of a request to a webhook's URL.
type WebhookFormat string

const (
	// WebhookStandard is the format of the Standard Webhooks: an object with type, timestamp and data.
	WebhookStandard WebhookFormat = "standard"
	// WebhookCloudEvents is a CloudEvent in structured mode.
	WebhookCloudEvents WebhookFormat = "cloudevents"
)

// WebhookDefinition is a team's definition of a webhook.
type WebhookDefinition struct {
	Selection           // the events; with Projection only Types and Filter
	Projection   string // replaces Stream and Categories: the events of this projection, once their documents are stored
	URL          string // http or https
	Delay        time.Duration
	DedupeID     string        // an expression event -> string (CEL): of the events with the same id in a window only the first is sent; empty: all are
	DedupeWindow time.Duration // between the times at which the events were recorded
	From         string        // where a new webhook begins, as in GroupDefinition; empty: after the existing events
	Format       WebhookFormat
	Ordering     Ordering
	Timeout      time.Duration // of one request, from the name lookup to the end of the answer
}

// Webhook is a stored webhook. Secrets holds the secrets that have not expired, oldest first; it is empty in lists
// across tenants.
type Webhook struct {
	Name string
	WebhookDefinition
	Revision       int64 // increases with each change, including its secrets and replay, and when it is paused, resumed or disabled
	Paused         bool
	DisabledAt     time.Time // when the service stopped it, for DisabledReason; zero: it has not
	DisabledReason string
	Secrets        []WebhookSecret
	Replay         *WebhookReplay // the last replay; nil: there is none
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// Stopped reports whether the webhook is paused or disabled. It then sends only test messages, and no replay either.
func (w *Webhook) Stopped() bool { return w.Paused || !w.DisabledAt.IsZero() }

// WebhookSecretID identifies a secret. The id itself is not secret.
type WebhookSecretID uuid

// NewWebhookSecretID returns a new id.
func NewWebhookSecretID() WebhookSecretID { return WebhookSecretID(newUUID()) }

// ParseWebhookSecretID parses the canonical form of a UUID.
func ParseWebhookSecretID(text string) (WebhookSecretID, error) {
	id, err := parseUUID(text)
	return WebhookSecretID(id), err
}

// String returns the canonical form of 36 characters.
func (id WebhookSecretID) String() string { return uuid(id).String() }

// WebhookSecret signs what a webhook sends. It is stored in plain form, because signing needs it, and shown once.
type WebhookSecret struct {
	ID        WebhookSecretID
	Key       []byte    // 32 random bytes
	CreatedAt time.Time // by the database's clock
	ExpiresAt time.Time // it stops signing then; zero: never
}

// Text returns the secret as it is shown, in the form that libraries for Standard Webhooks expect.
func (s *WebhookSecret) Text() string {
	return "whsec_" + base64.StdEncoding.EncodeToString(s.Key)
}

// Signs reports whether the secret has not yet expired at a time.
func (s *WebhookSecret) Signs(at time.Time) bool {
	return s.ExpiresAt.IsZero() || at.Before(s.ExpiresAt)
}

// WebhookReplay sends the events of a range again. A webhook has at most one replay at a time. After the end of the
// range, the replay's group remains with its dead letters until another replay replaces it.
type WebhookReplay struct {
	From      int64 // the first position
	To        int64 // the last position, inclusive
	StartedAt time.Time
	DoneAt    time.Time // when its group reached the end; zero: it is still running
}

// WebhookOutcome is the result of one attempt to send an event.
type WebhookOutcome string

// The outcomes.
const (
	WebhookOK        WebhookOutcome = "ok"        // answered with 2xx
	WebhookFailed    WebhookOutcome = "failed"    // answered with another status, or no connection
	WebhookTimeout   WebhookOutcome = "timeout"   // not answered in time
	WebhookBlocked   WebhookOutcome = "blocked"   // the service may not send to the address: nothing was sent
	WebhookGone      WebhookOutcome = "gone"      // answered with 410: the webhook is disabled
	WebhookDuplicate WebhookOutcome = "duplicate" // another event in the window has the same id: nothing was sent
)

// WebhookOutcomes lists all outcomes in display order.
var WebhookOutcomes = [...]WebhookOutcome{WebhookOK, WebhookFailed, WebhookTimeout, WebhookBlocked, WebhookGone, WebhookDuplicate}

// WebhookAttemptID identifies an attempt. Later attempts have greater ids, as far as clocks agree.
type WebhookAttemptID uuid

// NewWebhookAttemptID returns a new id.
func NewWebhookAttemptID() WebhookAttemptID { return WebhookAttemptID(newUUID()) }

// ParseWebhookAttemptID parses the canonical form of a UUID.
func ParseWebhookAttemptID(text string) (WebhookAttemptID, error) {
	id, err := parseUUID(text)
	return WebhookAttemptID(id), err
}

// FirstWebhookAttemptID returns the lower bound of the ids made at or after a time. To the millisecond, it is above all
// ids made before.
func FirstWebhookAttemptID(at time.Time) WebhookAttemptID {
	var id WebhookAttemptID
	var millis [8]byte
	binary.BigEndian.PutUint64(millis[:], uint64(max(at.UnixMilli(), 0)))
	copy(id[:6], millis[2:])
	return id
}

// String returns the canonical form of 36 characters.
func (id WebhookAttemptID) String() string { return uuid(id).String() }

// IsZero reports whether no id was given.
func (id WebhookAttemptID) IsZero() bool { return id == WebhookAttemptID{} }

// WebhookAttempt is one entry in a webhook's log of attempts.
type WebhookAttempt struct {
	ID       WebhookAttemptID
	EventID  EventID
	Type     string // the event's
	Position int64  // of the event; 0: it was a test
	Attempt  int    // the group's number; 0: it was a test
	Replay   bool   // it belonged to a replay
	URL      string // the webhook's URL at that time; empty for a duplicate
	Outcome  WebhookOutcome
	Status   int           // of the answer; 0: there was no answer
	Took     time.Duration // until the answer, to the microsecond
	Error    string        // why there was no answer, at most MaxWebhookErrorBytes
	Excerpt  string        // of an answer other than 2xx, at most MaxWebhookExcerptBytes
	At       time.Time     // when it began, by the sender's clock
	NextAt   time.Time     // when the next attempt is due; zero: there is none
}

// WebhookFailing says that the latest attempts to reach a webhook's URL have failed, as far back as its log of attempts
// goes.
type WebhookFailing struct {
	Since    time.Time // when the first of them began
	Attempts int64     // consecutive failures, including test messages
	LastAt   time.Time // when the last of them began
	Outcome  WebhookOutcome
	Status   int    // of the last answer; 0: there was none
	Error    string // why there was no answer
}

// WebhookClaim is an event that may be sent only if no other event with the same DedupeID result was sent.
type WebhookClaim struct {
	ID         [sha256.Size]byte // the SHA-256 of the result of DedupeID
	Position   int64             // of the event
	RecordedAt time.Time         // of the event
}

// WebhookClaimID returns the ID of a claim.
func WebhookClaimID(id string) [sha256.Size]byte { return sha256.Sum256([]byte(id)) }

// WebhookAttempts is a query for a webhook's attempts, newest first.
type WebhookAttempts struct {
	Before  WebhookAttemptID // only earlier attempts than this; zero: from the newest
	EventID EventID          // zero: of any event
	Outcome WebhookOutcome   // empty: any
	Limit   int
}

// Defaults and limits of webhooks.
const (
	DefaultWebhookTimeout = 15 * time.Second

	MaxWebhookURLBytes     = 2000
	MaxWebhookDelay        = 30 * 24 * time.Hour
	MaxDedupeWindow        = 7 * 24 * time.Hour
	MinWebhookTimeout      = time.Second
	MaxWebhookTimeout      = 15 * time.Second
	MaxWebhookSecrets      = 5 // of a webhook, not counting expired ones
	WebhookSecretBytes     = 32
	MaxWebhookErrorBytes   = 500
	MaxWebhookExcerptBytes = 2000

	MaxWebhookAttempts   = 10_000 // of a webhook, approximately
	WebhookAttemptsLife  = 7 * 24 * time.Hour
	WebhookClaimsKeepFor = time.Hour // after the end of the window, by the times of the events
)
