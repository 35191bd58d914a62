package rebuild

import (
	"context"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

// pacedLog is the log as a rebuild reads it. Each read waits until live work leaves room. It also waits until the
// rebuild's rate allows for the events of the previous reads.
type pacedLog struct {
	projection.Log
	pace func(ctx context.Context) error // nil: live work does not delay it
	rate *throttle                       // nil: unlimited
}

// ReadLog is projection.Log's, after the wait.
func (l pacedLog) ReadLog(ctx context.Context, tenant domain.TenantID, q domain.LogQuery) ([]domain.Event, error) {
	return l.paced(ctx, func() ([]domain.Event, error) { return l.Log.ReadLog(ctx, tenant, q) })
}

// ReadByStream is projection.Log's, after the wait.
func (l pacedLog) ReadByStream(ctx context.Context, tenant domain.TenantID, q domain.ByStreamQuery) ([]domain.Event, error) {
	return l.paced(ctx, func() ([]domain.Event, error) { return l.Log.ReadByStream(ctx, tenant, q) })
}

func (l pacedLog) paced(ctx context.Context, read func() ([]domain.Event, error)) ([]domain.Event, error) {
	if l.pace != nil {
		if err := l.pace(ctx); err != nil {
			return nil, err
		}
	}
	if l.rate == nil {
		return read()
	}
	if err := l.rate.wait(ctx); err != nil {
		return nil, err
	}
	events, err := read()
	l.rate.spend(len(events))
	return events, err
}

// throttle spreads events over time, for all goroutines of one rebuild together: each reading waits for the events of
// previous ones.
type throttle struct {
	perEvent time.Duration

	mu   sync.Mutex
	free time.Time // when the rate allows for everything read so far
}

// newThrottle allows this many events per second; nil if there is no limit.
func newThrottle(eventsPerSecond int64) *throttle {
	if eventsPerSecond <= 0 {
		return nil
	}
	return &throttle{perEvent: time.Second / time.Duration(eventsPerSecond)}
}

// wait returns when the rate allows for everything read before.
func (t *throttle) wait(ctx context.Context) error {
	for {
		t.mu.Lock()
		left := time.Until(t.free)
		t.mu.Unlock()
		if left <= 0 {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

func (t *throttle) spend(events int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); t.free.Before(now) {
		t.free = now
	}
	t.free = t.free.Add(time.Duration(events) * t.perEvent)
}

// limitToRate limits a batch of a throttled rebuild to about what it may read in a second, so that it proceeds evenly.
func limitToRate(limits projection.Limits, eventsPerSecond int64) projection.Limits {
	if eventsPerSecond > 0 {
		limits.Events = int(min(int64(limits.Events), max(1, eventsPerSecond)))
	}
	return limits
}
