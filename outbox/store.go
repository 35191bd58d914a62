package outbox

import (
	"context"
	"time"
)

// Store is an outbox as a Drainer uses it. Packages outbox/postgres, outbox/sqlite and outbox/mongo implement it, and
// so may you. Package outbox/outboxtest is its specification. All methods may be called from many goroutines and
// processes.
type Store interface {
	// Claim leases at most limit rows that are due and that nobody else has leased, the oldest first. Of each stream it
	// takes the first unpublished rows, in their order and without gaps. So a claim has no row while an earlier one of
	// its stream is leased elsewhere or not due. An empty claim has no rows.
	Claim(ctx context.Context, limit int, lease time.Duration) (Claim, error)
	// Settle records the outcome of a claim, and ends it. Published rows are never returned again, whoever has leased
	// them now; keep says whether they are kept, marked, until they are swept. Refused rows are due again after their
	// pause, and block their stream until then. The other rows are due at once. If the claim's lease has expired, only
	// its published rows count.
	Settle(ctx context.Context, claim Claim, outcome Outcome, keep bool) error
	// Lag returns how many rows are not published yet, counted up to MaxLag, and when the first of them was added.
	Lag(ctx context.Context) (Lag, error)
	// Sweep removes rows that were published longer ago than keep, at most limit of them, and returns how many. The
	// store also cleans up its other data here.
	Sweep(ctx context.Context, keep time.Duration, limit int) (int, error)
}

// Claim is a set of rows leased together.
type Claim struct {
	ID   string // identifies the lease
	Rows []Row  // in the order in which they were added, strictly so within a stream
}

// Outcome is the outcome of a claim. A row that it does not name was not published, and nothing is wrong with it.
type Outcome struct {
	Published []Row
	Refused   []Refusal
}

// Refusal is a row that was refused.
type Refusal struct {
	Row    Row
	Reason string        // for people: at most MaxReasonBytes
	Pause  time.Duration // before it is retried
}

// Lag is the backlog of an outbox.
type Lag struct {
	Waiting int           // unpublished rows; MaxLag: so many or more
	Oldest  time.Duration // how long ago the first of them was added; 0 if there is none
}

const (
	// MaxLag is the highest number of rows that is counted.
	MaxLag = 10_000
	// MaxReasonBytes is the maximum length of a stored reason.
	MaxReasonBytes = 1000
)
