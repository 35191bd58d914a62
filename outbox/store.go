package outbox

import (
	"context"
	"time"
)

// Store is an outbox as a Drainer sees it: those of packages outbox/postgres and outbox/mongo, or one's own. Package
// outbox/outboxtest is its specification. All methods may be called from many goroutines and processes.
type Store interface {
	// Claim leases rows that nobody else has a lease of, and that are due: at most limit of them, those that were added first
	// first. Of each stream it takes the first that are not published yet, in their order, without leaving one out; so there
	// is no row in a claim while an earlier one of its stream is with somebody else, or not due. An empty claim has no rows.
	Claim(ctx context.Context, limit int, lease time.Duration) (Claim, error)
	// Settle says what became of a claim, and ends it. Published rows are never given again, whoever has a lease of them now;
	// keep says whether they are kept, marked, until they are swept. Refused ones are due again after their pause, and until then
	// hold up their stream. The others are due at once. Of a claim whose lease has ended the published count, and nothing else.
	Settle(ctx context.Context, claim Claim, outcome Outcome, keep bool) error
	// Lag says how many rows are not published yet, counted up to MaxLag, and when the first of them was added.
	Lag(ctx context.Context) (Lag, error)
	// Sweep removes rows that were published longer ago than keep, at most limit of them, and returns how many. What else the
	// store keeps by the way it tidies up here.
	Sweep(ctx context.Context, keep time.Duration, limit int) (int, error)
}

// Claim is what was leased together.
type Claim struct {
	ID   string // names the lease
	Rows []Row  // in the order in which they were added, those of one stream strictly
}

// Outcome is what became of a claim. Rows that it does not name were not published, and nothing is wrong with them.
type Outcome struct {
	Published []Row
	Refused   []Refusal
}

// Refusal is a row that was not taken.
type Refusal struct {
	Row    Row
	Reason string        // for people: at most MaxReasonBytes
	Pause  time.Duration // before it is tried again
}

// Lag is how far an outbox is behind.
type Lag struct {
	Waiting int           // rows that are not published yet; MaxLag: so many or more
	Oldest  time.Duration // how long ago the first of them was added; 0 where there is none
}

const (
	// MaxLag is up to how many rows are counted.
	MaxLag = 10_000
	// MaxReasonBytes bounds what is kept of a refusal.
	MaxReasonBytes = 1000
)
