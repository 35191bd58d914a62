package subscription

import (
	"context"
	"log/slog"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// TailsConfig is what Tails are made of.
type TailsConfig struct {
	Store Log
	Bytes int // of events that one tail keeps in memory; 0: 8 MiB
	Log   *slog.Logger
}

// Log is what is read of tenants' logs.
type Log interface {
	Head(ctx context.Context, tenant domain.TenantID) (domain.Head, error)
	ReadLog(ctx context.Context, tenant domain.TenantID, q domain.LogQuery) ([]domain.Event, error)
	ReadStream(ctx context.Context, tenant domain.TenantID, stream string, q domain.StreamQuery) ([]domain.Event, error)
	// PositionAt is the last position recorded at the time or before it; 0 where there is none.
	PositionAt(ctx context.Context, tenant domain.TenantID, at time.Time) (int64, error)
	// EventPosition is where an event is; domain.CodeNotFound where it is not.
	EventPosition(ctx context.Context, tenant domain.TenantID, id domain.EventID) (int64, error)
	// VersionBefore is the version of a stream's newest event below a position; 0 where there is none.
	VersionBefore(ctx context.Context, tenant domain.TenantID, stream string, position int64) (int64, error)
}

// Tails follow tenants' logs for those who want to know of events as they come.
type Tails struct{}

// NewTails returns Tails that follow nothing yet.
func NewTails(config TailsConfig) *Tails { return &Tails{} }

// Wake tells that a log has moved. It returns at once: it is for store.Listen.
func (t *Tails) Wake(head domain.Head) {}

// Follow begins a Feed, which must be closed.
func (t *Tails) Follow(ctx context.Context, tenant domain.TenantID, wanted domain.Follow) (*Feed, error) {
	return nil, domain.Errorf(domain.CodeUnsupported, "", "this is not there yet")
}

// Feed is one follower's place in a log. It is for one goroutine.
type Feed struct{}

// Entry is an event of a feed. Many feeds share one, with what was made of it.
type Entry struct{ Event domain.Event }

// Encoded returns what encode makes of the event, which it is asked for once: all feeds that share the entry get the same
// bytes, which nobody may change. encode must always give the same.
func (e *Entry) Encoded(encode func(*domain.Event) []byte) []byte { return encode(&e.Event) }

// Slice is what comes next in a feed.
type Slice struct {
	Entries  []*Entry
	Position int64 // everything up to here has been sent or passed over
	CaughtUp bool  // Position is the head as it was, and was not, at the slice before
}

// Next returns the next slice, which is never without news: it waits until there is some, or ctx ends.
func (f *Feed) Next(ctx context.Context) (Slice, error) { return Slice{}, nil }

// Close ends the feed.
func (f *Feed) Close() {}
