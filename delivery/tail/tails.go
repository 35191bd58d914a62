package tail

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
)

// Config configures Tails. Events and Log are required.
type Config struct {
	Events    *eventlog.Log
	Followers int // limit for one tenant's log at the same time; 0: none
	Bytes     int // per tail, with derived data; all tails together: 16 times as much; 0: DefaultBytes
	Reads     int // slices read at the same time for followers that are behind their tails; 0: 4
	Observer  Observer
	Log       *slog.Logger
}

// Defaults of a Config.
const (
	DefaultBytes = 8 << 20
	defaultReads = 4
)

// Observer has optional functions that report what Tails does. They are called by several goroutines and must
// return at once.
type Observer struct {
	Followers func(now int)                        // number of open feeds
	Tails     func(now int)                        // number of tenants whose logs are followed
	Read      func(took time.Duration, events int) // a tail has read events from the log
}

// Tails follows tenants' logs for readers that want events as they arrive. All methods may be called concurrently.
type Tails struct {
	config             Config
	reportSkippedAfter time.Duration // skippedTime, except in tests
	reads              chan struct{} // one entry per slice being read for a feed; shares database connections with appends
	behind             atomic.Int64  // bytes of events in feeds that are behind their tails
	maxBehind          int64         // behindBytes, except in tests

	mu        sync.RWMutex
	tails     map[domain.TenantID]*tail // tenants that are followed
	followers int
	loggedAt  time.Time

	share  atomic.Int64 // bytes that each tail may keep
	shrunk int64        // limit of bytes that was last enforced in all tails
}

// behindBytes is how much feeds that are behind their tails may have in memory. Above it, each of them gets the
// smallest slices and no read-ahead.
const behindBytes = 64 << 20

// New returns Tails that follow no log yet.
func New(config Config) *Tails {
	config.Bytes = cmp.Or(config.Bytes, DefaultBytes)
	t := &Tails{
		config: config, reportSkippedAfter: skippedTime, reads: make(chan struct{}, cmp.Or(config.Reads, defaultReads)), maxBehind: behindBytes,
		tails: make(map[domain.TenantID]*tail),
	}
	t.divide()
	return t
}

// Wake reports that a log has moved. It returns at once.
func (t *Tails) Wake(head domain.Head) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if tail := t.tails[head.Tenant]; tail != nil {
		tail.wake(head.Position)
	}
}

// Forget reports that stored events of a tenant may have other tags, or of any tenant with domain.Everyone.
func (t *Tails) Forget(tenant domain.TenantID) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for of, tail := range t.tails {
		if of == tenant || tenant == domain.Everyone {
			tail.forget()
		}
	}
}

// Follow starts a Feed, which the caller must close. ctx is only for starting. An invalid request returns a
// *domain.Error; see domain.Selection for the places. Follow returns domain.CodeNotFound if the event to start with
// does not exist, and domain.CodeTooManyRequests if the tenant has the maximum number of followers.
func (t *Tails) Follow(ctx context.Context, tenant domain.TenantID, wanted domain.Follow) (*Feed, error) {
	selection, err := selection.New(wanted.Selection)
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

// begin returns where a follower begins, and the log's head.
func (t *Tails) begin(ctx context.Context, tenant domain.TenantID, from domain.From) (position, head int64, err error) {
	now, err := t.config.Events.Head(ctx, tenant)
	if err != nil {
		return 0, 0, err
	}
	if from.End {
		return now.Position + 1, now.Position, nil
	}
	position, err = selection.ResolveFrom(ctx, t.config.Events, tenant, from)
	return position, now.Position, err
}

// join returns a tenant's tail for one more follower, unless the tenant has the maximum number.
func (t *Tails) join(tenant domain.TenantID) (*tail, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tail := t.tails[tenant]
	if most := t.config.Followers; tail != nil && most > 0 && tail.followers.Load() >= int64(most) {
		return nil, domain.Errorf(domain.CodeTooManyRequests, "", "this tenant has %d followers; end some, or try again later", most)
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

// leave removes a follower. The last one ends the tail.
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

// Division of the memory if many logs are followed.
const (
	fullTails = 16       // up to so many tails may each keep the maximum
	leastTail = 64 << 10 // bytes
)

// divide sets how much each tail may keep, after their number has changed. It makes tails return memory only when the
// limit has halved since the last time.
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

// Retries of reads.
const (
	readTimeout  = 20 * time.Second // of one read
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// try calls read until it succeeds, with growing pauses after errors that may pass. It returns the first other error,
// or the cause of ctx.
func (t *Tails) try(ctx context.Context, tenant domain.TenantID, isTemporary func(error) bool, read func(context.Context) error) error {
	for attempt := 0; ; attempt++ {
		bounded, cancel := context.WithTimeout(ctx, readTimeout)
		err := read(bounded)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !isTemporary(err):
			return err
		}
		if attempt == 0 {
			t.logFailure(tenant, err)
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

// isTimeout reports whether the database did not answer in time.
func isTimeout(err error) bool {
	if failure, ok := errors.AsType[*domain.Error](err); ok {
		return failure.Code == domain.CodeUnavailable || failure.Code == domain.CodeOverloaded
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// logFailure logs that a read has failed, at most once in a while: if the database does not answer, all reads fail.
func (t *Tails) logFailure(tenant domain.TenantID, err error) {
	const silence = 30 * time.Second
	t.mu.Lock()
	again := time.Since(t.loggedAt) < silence
	if !again {
		t.loggedAt = time.Now()
	}
	t.mu.Unlock()
	if !again {
		t.config.Log.Warn("a log cannot be read for its followers; trying again", "tenant", tenant, "error", err)
	}
}
