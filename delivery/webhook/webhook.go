package webhook

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// A webhook sends events of a tenant's log to a URL. It has a row and a group, ServiceGroup("webhook", name), whose
// consumer is the service. A replay of a range has an additional group, ServiceGroup("replay", name).

// Format is the format of the body of a request to a webhook's URL.
type Format string

const (
	// FormatStandard is the format of the Standard Webhooks: an object with type, timestamp and data.
	FormatStandard Format = "standard"
	// FormatCloudEvents is a CloudEvent in structured mode.
	FormatCloudEvents Format = "cloudevents"
)

// Definition is a team's definition of a webhook.
type Definition struct {
	domain.Selection        // the events; with Projection only Types, Query and Filter
	Projection       string // replaces Stream and Categories: the events of this projection, once their documents are stored
	URL              string // http or https
	Delay            time.Duration
	DedupeID         string        // an expression event -> string (CEL): of the events with the same id in a window only the first is sent; empty: all are
	DedupeWindow     time.Duration // between the times at which the events were recorded
	From             string        // where a new webhook begins, as in GroupDefinition; empty: after the existing events
	Format           Format
	Ordering         domain.Ordering
	Timeout          time.Duration // of one request, from the name lookup to the end of the answer
}

// Webhook is a stored webhook. Secrets holds the secrets that have not expired, oldest first; it is empty in lists
// across tenants.
type Webhook struct {
	Name string
	Definition
	Revision       int64 // increases with each change, including its secrets and replay, and when it is paused, resumed or disabled
	Paused         bool
	DisabledAt     time.Time // when the service stopped it, for DisabledReason; zero: it has not
	DisabledReason string
	Secrets        []Secret
	Replay         *Replay // the last replay; nil: there is none
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// Stopped reports whether the webhook is paused or disabled. It then sends only test messages, and no replay either.
func (w *Webhook) Stopped() bool { return w.Paused || !w.DisabledAt.IsZero() }

// SecretID identifies a secret. The id itself is not secret.
type SecretID domain.UUID

// NewSecretID returns a new id.
func NewSecretID() SecretID { return SecretID(domain.NewUUID()) }

// ParseSecretID parses the canonical form of a UUID.
func ParseSecretID(text string) (SecretID, error) {
	id, err := domain.ParseUUID(text)
	return SecretID(id), err
}

// String returns the canonical form of 36 characters.
func (id SecretID) String() string { return domain.UUID(id).String() }

// Secret signs what a webhook sends. Signing needs it in plain form, so it is stored as it is or encrypted, not hashed.
// It is shown once.
type Secret struct {
	ID        SecretID
	Key       []byte    // 32 random bytes; nil if it cannot be decrypted
	Unusable  error     // why it cannot be decrypted; nil: it can
	CreatedAt time.Time // by the database's clock
	ExpiresAt time.Time // it stops signing then; zero: never
}

// Text returns the secret as it is shown, in the form that libraries for Standard Webhooks expect.
func (s *Secret) Text() string {
	return "whsec_" + base64.StdEncoding.EncodeToString(s.Key)
}

// Signs reports whether the secret has not yet expired at a time.
func (s *Secret) Signs(at time.Time) bool {
	return s.ExpiresAt.IsZero() || at.Before(s.ExpiresAt)
}

// Replay sends the events of a range again. A webhook has at most one replay at a time. After the end of the
// range, the replay's group remains with its dead letters until another replay replaces it.
type Replay struct {
	From      int64 // the first position
	To        int64 // the last position, inclusive
	StartedAt time.Time
	DoneAt    time.Time // when its group reached the end; zero: it is still running
}

// Outcome is the result of one attempt to send an event.
type Outcome string

// The outcomes.
const (
	OutcomeOK        Outcome = "ok"        // answered with 2xx
	OutcomeFailed    Outcome = "failed"    // answered with another status, or no connection
	OutcomeTimeout   Outcome = "timeout"   // not answered in time
	OutcomeBlocked   Outcome = "blocked"   // the service may not send to the address: nothing was sent
	OutcomeGone      Outcome = "gone"      // answered with 410: the webhook is disabled
	OutcomeDuplicate Outcome = "duplicate" // another event in the window has the same id: nothing was sent
)

// Outcomes lists all outcomes in display order.
var Outcomes = [...]Outcome{OutcomeOK, OutcomeFailed, OutcomeTimeout, OutcomeBlocked, OutcomeGone, OutcomeDuplicate}

// AttemptID identifies an attempt. Later attempts have greater ids, as far as clocks agree.
type AttemptID domain.UUID

// NewAttemptID returns a new id.
func NewAttemptID() AttemptID { return AttemptID(domain.NewUUID()) }

// ParseAttemptID parses the canonical form of a UUID.
func ParseAttemptID(text string) (AttemptID, error) {
	id, err := domain.ParseUUID(text)
	return AttemptID(id), err
}

// FirstAttemptID returns the lower bound of the ids made at or after a time. To the millisecond, it is above all
// ids made before.
func FirstAttemptID(at time.Time) AttemptID {
	var id AttemptID
	var millis [8]byte
	binary.BigEndian.PutUint64(millis[:], uint64(max(at.UnixMilli(), 0)))
	copy(id[:6], millis[2:])
	return id
}

// String returns the canonical form of 36 characters.
func (id AttemptID) String() string { return domain.UUID(id).String() }

// IsZero reports whether no id was given.
func (id AttemptID) IsZero() bool { return id == AttemptID{} }

// Attempt is one entry in a webhook's log of attempts.
type Attempt struct {
	ID       AttemptID
	EventID  domain.EventID
	Type     string // the event's
	Position int64  // of the event; 0: it was a test
	Attempt  int    // the group's number; 0: it was a test
	Replay   bool   // it belonged to a replay
	URL      string // the webhook's URL at that time; empty for a duplicate
	Outcome  Outcome
	Status   int           // of the answer; 0: there was no answer
	Took     time.Duration // until the answer, to the microsecond
	Error    string        // why there was no answer, at most MaxErrorBytes
	Excerpt  string        // of an answer other than 2xx, at most MaxExcerptBytes
	At       time.Time     // when it began, by the sender's clock
	NextAt   time.Time     // when the next attempt is due; zero: there is none
}

// Failing says that the latest attempts to reach a webhook's URL have failed, as far back as its log of attempts
// goes.
type Failing struct {
	Since    time.Time // when the first of them began
	Attempts int64     // consecutive failures, including test messages
	LastAt   time.Time // when the last of them began
	Outcome  Outcome
	Status   int    // of the last answer; 0: there was none
	Error    string // why there was no answer
}

// Claim is an event that may be sent only if no other event with the same DedupeID result was sent.
type Claim struct {
	ID         [sha256.Size]byte // the SHA-256 of the result of DedupeID
	Position   int64             // of the event
	RecordedAt time.Time         // of the event
}

// ClaimID returns the ID of a claim.
func ClaimID(id string) [sha256.Size]byte { return sha256.Sum256([]byte(id)) }

// AttemptQuery is a query for a webhook's attempts, newest first.
type AttemptQuery struct {
	Before  AttemptID      // only earlier attempts than this; zero: from the newest
	EventID domain.EventID // zero: of any event
	Outcome Outcome        // empty: any
	Limit   int
}

// Defaults and limits of webhooks.
const (
	MaxWebhooks = 1000 // of a tenant; beyond it the error is domain.CodeQuotaExceeded

	DefaultTimeout = 15 * time.Second

	MaxURLBytes     = 2000
	MaxDelay        = 30 * 24 * time.Hour
	MaxDedupeWindow = 7 * 24 * time.Hour
	MinTimeout      = time.Second
	MaxTimeout      = 15 * time.Second
	MaxSecrets      = 5 // of a webhook, not counting expired ones
	SecretBytes     = 32
	MaxErrorBytes   = 500
	MaxExcerptBytes = 2000

	MaxAttempts  = 10_000 // of a webhook, approximately
	AttemptsLife = 7 * 24 * time.Hour
	ClaimsKept   = time.Hour // after the end of the window, by the times of the events
)
