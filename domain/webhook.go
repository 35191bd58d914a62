package domain

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"
)

// A webhook sends events of a tenant's log to a URL. It is a row of its own, and the group ServiceGroup("webhook", name), whose
// consumer is the service; a replay of a range is the group ServiceGroup("replay", name) beside it.

// WebhookFormat says what the body of a request to a webhook's URL is.
type WebhookFormat string

const (
	// WebhookStandard is the form of the Standard Webhooks: an object with type, timestamp and data.
	WebhookStandard WebhookFormat = "standard"
	// WebhookCloudEvents is a CloudEvent in its structured form.
	WebhookCloudEvents WebhookFormat = "cloudevents"
)

// WebhookDefinition is what a team says of a webhook.
type WebhookDefinition struct {
	Selection           // the events; with Projection only Types and Filter
	Projection   string // instead of Stream and Categories: the events of this projection, once their documents are stored
	URL          string // http or https
	Delay        time.Duration
	DedupeID     string        // an expression event -> string (CEL): of the events with one id within a window the first is sent; empty: all are
	DedupeWindow time.Duration // between the times at which they were recorded
	From         string        // where a new one begins, as GroupDefinition has it; empty: behind what is there
	Format       WebhookFormat
	Ordering     Ordering
	Timeout      time.Duration // of one request, from its name's lookup to the end of its answer
}

// Webhook is a webhook as it is kept. Secrets are those that have not expired, oldest first; a list across many tenants has
// none.
type Webhook struct {
	Name string
	WebhookDefinition
	Revision       int64 // grows with each change, also of its secrets, its replay, and when it is paused, resumed or disabled
	Paused         bool
	DisabledAt     time.Time // the service has stopped it, and says why in DisabledReason; zero: it has not
	DisabledReason string
	Secrets        []WebhookSecret
	Replay         *WebhookReplay // the last one; nil: there is none
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// Stopped reports whether it is paused or disabled: then nothing is sent, of a replay neither, but test messages.
func (w *Webhook) Stopped() bool { return w.Paused || !w.DisabledAt.IsZero() }

// WebhookSecretID names a secret. It is no secret.
type WebhookSecretID uuid

// NewWebhookSecretID returns a fresh id.
func NewWebhookSecretID() WebhookSecretID { return WebhookSecretID(newUUID()) }

// ParseWebhookSecretID reads the canonical form of a UUID.
func ParseWebhookSecretID(text string) (WebhookSecretID, error) {
	id, err := parseUUID(text)
	return WebhookSecretID(id), err
}

// String returns the canonical form of 36 characters.
func (id WebhookSecretID) String() string { return uuid(id).String() }

// WebhookSecret signs what a webhook sends. It is kept as it is, since a signature is made with it, and shown once.
type WebhookSecret struct {
	ID        WebhookSecretID
	Key       []byte    // 32 random bytes
	CreatedAt time.Time // by the database's clock
	ExpiresAt time.Time // it signs no more from then on; zero: never
}

// Text is the secret as it is shown, and as libraries of Standard Webhooks take it.
func (s *WebhookSecret) Text() string {
	return "whsec_" + base64.StdEncoding.EncodeToString(s.Key)
}

// Signs reports whether the secret has not expired at a time.
func (s *WebhookSecret) Signs(at time.Time) bool {
	return s.ExpiresAt.IsZero() || at.Before(s.ExpiresAt)
}

// WebhookReplay sends the events of a range once more. There is one at a time for a webhook. Its group stays behind the end of
// the range with its dead letters, until another replay takes its place.
type WebhookReplay struct {
	From      int64 // the first position
	To        int64 // the last position, included
	StartedAt time.Time
	DoneAt    time.Time // its group was at the end; zero: it is under way
}

// WebhookOutcome says what became of one attempt to send an event.
type WebhookOutcome string

// The outcomes.
const (
	WebhookOK        WebhookOutcome = "ok"        // answered with 2xx
	WebhookFailed    WebhookOutcome = "failed"    // answered with something else, or there was no connection
	WebhookTimeout   WebhookOutcome = "timeout"   // not answered in time
	WebhookBlocked   WebhookOutcome = "blocked"   // the address is none that the service may send to: nothing was sent
	WebhookGone      WebhookOutcome = "gone"      // answered with 410: the webhook is disabled
	WebhookDuplicate WebhookOutcome = "duplicate" // another event of the same id lies within the window: nothing was sent
)

// WebhookOutcomes are all of them, in the order in which they are shown.
var WebhookOutcomes = [...]WebhookOutcome{WebhookOK, WebhookFailed, WebhookTimeout, WebhookBlocked, WebhookGone, WebhookDuplicate}

// WebhookAttemptID names an attempt. Later ones are greater, as far as clocks agree.
type WebhookAttemptID uuid

// NewWebhookAttemptID returns a fresh id.
func NewWebhookAttemptID() WebhookAttemptID { return WebhookAttemptID(newUUID()) }

// ParseWebhookAttemptID reads the canonical form of a UUID.
func ParseWebhookAttemptID(text string) (WebhookAttemptID, error) {
	id, err := parseUUID(text)
	return WebhookAttemptID(id), err
}

// FirstWebhookAttemptID is below every id that was made at a time or later, and above all that were made before, to the
// millisecond.
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

// WebhookAttempt is one line of a webhook's log of attempts.
type WebhookAttempt struct {
	ID       WebhookAttemptID
	EventID  EventID
	Type     string // the event's
	Position int64  // the event's; 0: it was a test
	Attempt  int    // as the group numbers them; 0: it was a test
	Replay   bool   // it was of a replay
	URL      string // where to, as the webhook had it then; empty of a duplicate
	Outcome  WebhookOutcome
	Status   int           // of the answer; 0: there was none
	Took     time.Duration // until the answer, to the microsecond
	Error    string        // why there was no answer, at most MaxWebhookErrorBytes
	Excerpt  string        // of an answer that was no 2xx, at most MaxWebhookExcerptBytes
	At       time.Time     // when it began, by the sender's clock
	NextAt   time.Time     // when it is tried again; zero: it is not
}

// WebhookFailing is that the newest attempts to reach a webhook's URL have failed, as far as its log of attempts goes back.
type WebhookFailing struct {
	Since    time.Time // when the first of them began
	Attempts int64     // in a row, test messages among them
	LastAt   time.Time // when the last of them began
	Outcome  WebhookOutcome
	Status   int    // of the last one's answer; 0: there was none
	Error    string // why there was none
}

// WebhookClaim is an event that asks whether it is to be sent, or another one that has the same id of DedupeID.
type WebhookClaim struct {
	ID         [sha256.Size]byte // the SHA-256 of what DedupeID gave
	Position   int64             // of the event
	RecordedAt time.Time         // of the event
}

// WebhookClaimID is what a claim has as its ID.
func WebhookClaimID(id string) [sha256.Size]byte { return sha256.Sum256([]byte(id)) }

// WebhookAttempts is a question for a webhook's attempts, newest first.
type WebhookAttempts struct {
	Before  WebhookAttemptID // those before this one; zero: from the newest on
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
	MaxWebhookSecrets      = 5 // of a webhook, that have not expired
	WebhookSecretBytes     = 32
	MaxWebhookErrorBytes   = 500
	MaxWebhookExcerptBytes = 2000

	MaxWebhookAttempts   = 10_000 // of a webhook that are kept, about
	WebhookAttemptsLife  = 7 * 24 * time.Hour
	WebhookClaimsKeepFor = time.Hour // behind the window, by the times of the events
)
