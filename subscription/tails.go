package subscription

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// TailsConfig is what Tails are made of. Store and Log must be set.
type TailsConfig struct {
	Store     Log
	Followers int // of one tenant's log at the same time; 0: any number
	Bytes     int // of events that one tail keeps in memory, with what was made of them, and a sixteenth of what all keep; 0: DefaultTailBytes
	Reads     int // slices that are read at the same time for those who are behind their tails; 0: 4
	Observer  TailsObserver
	Log       *slog.Logger
}

// Defaults of a TailsConfig.
const (
	DefaultTailBytes = 8 << 20
	defaultReads     = 4
)

// TailsObserver is told what Tails do. Each function may be nil; they are called by several goroutines and must return at
// once.
type TailsObserver struct {
	Followers func(now int)                        // so many feeds are open
	Tails     func(now int)                        // so many tenants' logs are followed
	Read      func(took time.Duration, events int) // a tail has read so many from the log
}

// Log is what is read of tenants' logs.
type Log interface {
	Head(ctx context.Context, tenant domain.TenantID) (domain.Head, error)
	LogSlice(ctx context.Context, tenant domain.TenantID, q domain.LogQuery) (domain.LogSlice, error)
	StreamSlice(ctx context.Context, tenant domain.TenantID, stream string, q domain.StreamQuery) (domain.StreamSlice, error)
	// Floors are those of categories (none: of all) of which something at a position or above it was removed.
	Floors(ctx context.Context, tenant domain.TenantID, categories []string, from int64) ([]domain.RetentionFloor, error)
	// PositionAt is the last position recorded at the time or before it; 0 where there is none.
	PositionAt(ctx context.Context, tenant domain.TenantID, at time.Time) (int64, error)
	// EventPosition is where an event is; domain.CodeNotFound where it is not.
	EventPosition(ctx context.Context, tenant domain.TenantID, id domain.EventID) (int64, error)
	// VersionBefore is the version of a stream's newest event below a position; 0 where there is none.
	VersionBefore(ctx context.Context, tenant domain.TenantID, stream string, position int64) (int64, error)
}

// Tails follow tenants' logs for those who want to know of events as they come. All methods may be called concurrently.
type Tails struct {
	config TailsConfig
	tell   time.Duration // passedTime
	reads  chan struct{} // has one for each slice that is being read for a feed: they share the database's connections with appends
	behind atomic.Int64  // bytes of events that feeds have which are behind their tails
	crowd  int64         // behindBytes

	mu         sync.RWMutex
	tails      map[domain.TenantID]*tail // that somebody follows
	followers  int
	complained time.Time

	share  atomic.Int64 // bytes that each tail may keep
	shrunk int64        // all tails keep no more than this
}

// behindBytes is up to how much feeds may have in memory that are behind their tails, before each of them has to do with the
// smallest slices and without reading ahead.
const behindBytes = 64 << 20

// NewTails returns Tails that follow nothing yet.
func NewTails(config TailsConfig) *Tails {
	config.Bytes = cmp.Or(config.Bytes, DefaultTailBytes)
	t := &Tails{
		config: config, tell: passedTime, reads: make(chan struct{}, cmp.Or(config.Reads, defaultReads)), crowd: behindBytes,
		tails: make(map[domain.TenantID]*tail),
	}
	t.divide()
	return t
}

// Wake tells that a log has moved. It returns at once: it is for store.Listen.
func (t *Tails) Wake(head domain.Head) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if tail := t.tails[head.Tenant]; tail != nil {
		tail.wake(head.Position)
	}
}

// Follow begins a Feed, which must be closed; ctx is for the beginning alone. What is wrong with what is wanted is a
// *domain.Error: see domain.Selection for the places. domain.CodeNotFound: there is no such event to begin with;
// domain.CodeTooManyRequests: the tenant has as many followers as it may have.
func (t *Tails) Follow(ctx context.Context, tenant domain.TenantID, wanted domain.Follow) (*Feed, error) {
	selection, err := newSelection(wanted.Selection)
	if err != nil {
		return nil, err
	}
	tail, err := t.join(tenant)
	if err != nil {
		return nil, err
	}
	position, head, err := t.begin(ctx, tenant, wanted.From)
	if err != nil {
		t.leave(tail)
		return nil, err
	}
	tail.begin(position, head)
	return newFeed(tail, selection, position-1, head), nil
}

// begin says where a follower begins, and what the log's head is.
func (t *Tails) begin(ctx context.Context, tenant domain.TenantID, from domain.From) (position, head int64, err error) {
	now, err := t.config.Store.Head(ctx, tenant)
	if err != nil {
		return 0, 0, err
	}
	if from.End {
		return now.Position + 1, now.Position, nil
	}
	position, err = resolveFrom(ctx, t.config.Store, tenant, from)
	return position, now.Position, err
}

// join returns a tenant's tail for one more follower, where it may have that.
func (t *Tails) join(tenant domain.TenantID) (*tail, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tail := t.tails[tenant]
	if most := t.config.Followers; tail != nil && most > 0 && tail.followers.Load() >= int64(most) {
		return nil, domain.Errorf(domain.CodeTooManyRequests, "", "%d follow this tenant's log at this moment; end some, or try again later", most)
	}
	if tail == nil {
		tail = newTail(t, tenant)
		t.tails[tenant] = tail
		t.divide()
	}
	tail.followers.Add(1)
	t.followers++
	t.observe()
	return tail, nil
}

// leave is for a follower that goes. With the last one the tail ends.
func (t *Tails) leave(tail *tail) {
	t.mu.Lock()
	last := tail.followers.Add(-1) == 0
	if last {
		delete(t.tails, tail.tenant)
		t.divide()
	}
	t.followers--
	t.observe()
	t.mu.Unlock()
	if last {
		tail.stop()
	}
}

// How the memory is divided where many logs are followed.
const (
	fullTails = 16       // so many may keep all that one may
	leastTail = 64 << 10 // bytes
)

// divide says what each tail may keep, now that there are more or fewer. It has those that have more give it back; not each time, but
// when it is half of what it was.
func (t *Tails) divide() {
	most := int64(t.config.Bytes)
	share := min(most, max(leastTail, fullTails*most/int64(max(1, len(t.tails)))))
	t.share.Store(share)
	if share > t.shrunk/2 {
		t.shrunk = max(t.shrunk, share)
		return
	}
	t.shrunk = share
	for _, tail := range t.tails {
		tail.ring.shrink()
	}
}

func (t *Tails) observe() {
	if t.config.Observer.Followers != nil {
		t.config.Observer.Followers(t.followers)
	}
	if t.config.Observer.Tails != nil {
		t.config.Observer.Tails(len(t.tails))
	}
}

// How reads are tried again.
const (
	readTimeout  = 20 * time.Second // of one
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// try reads, again and again with growing pauses while it fails by errors that may pass; it returns the first other one, or
// ctx's.
func (t *Tails) try(ctx context.Context, tenant domain.TenantID, passes func(error) bool, read func(context.Context) error) error {
	for attempt := 0; ; attempt++ {
		bounded, cancel := context.WithTimeout(ctx, readTimeout)
		err := read(bounded)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !passes(err):
			return err
		}
		if attempt == 0 {
			t.complain(tenant, err)
		}
		pause := min(longestPause, firstPause<<min(attempt, 10))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

func always(error) bool { return true }

// noAnswer reports whether the database did not answer, or not in time.
func noAnswer(err error) bool {
	if failure, ok := errors.AsType[*domain.Error](err); ok {
		return failure.Code == domain.CodeUnavailable || failure.Code == domain.CodeOverloaded
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// complain tells the log that a read has failed, and not of each: where the database does not answer, all of them do.
func (t *Tails) complain(tenant domain.TenantID, err error) {
	const silence = 30 * time.Second
	t.mu.Lock()
	again := time.Since(t.complained) < silence
	if !again {
		t.complained = time.Now()
	}
	t.mu.Unlock()
	if !again {
		t.config.Log.Warn("a log cannot be read for those who follow it; they wait while it is tried again", "tenant", tenant, "error", err)
	}
}
