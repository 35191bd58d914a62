package rebuild

import (
	"context"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

// pacedLog is the log as a rebuild reads it: each slice waits until live work lets it through, and until the events of the
// slices before are paid for, at the rate that the rebuild may have.
type pacedLog struct {
	projection.Log
	pace func(ctx context.Context) error // nil: nobody is waited for
	rate *throttle                       // nil: as fast as it goes
}

// ReadLog is projection.Log's, after the wait.
func (l pacedLog) ReadLog(ctx context.Context, tenant domain.TenantID, q domain.LogQuery) ([]domain.Event, error) {
	if l.pace != nil {
		if err := l.pace(ctx); err != nil {
			return nil, err
		}
	}
	if l.rate == nil {
		return l.Log.ReadLog(ctx, tenant, q)
	}
	if err := l.rate.wait(ctx); err != nil {
		return nil, err
	}
	events, err := l.Log.ReadLog(ctx, tenant, q)
	l.rate.spend(len(events))
	return events, err
}

// throttle spreads events over time, for all goroutines of one rebuild together: what was read is paid for by a wait
// before the next reading.
type throttle struct {
	perEvent time.Duration

	mu   sync.Mutex
	free time.Time // when everything read so far is paid for
}

// newThrottle lets so many events through in a second; nil where there is no bound.
func newThrottle(eventsPerSecond int64) *throttle {
	if eventsPerSecond <= 0 {
		return nil
	}
	return &throttle{perEvent: time.Second / time.Duration(eventsPerSecond)}
}

// wait returns when what was read before is paid for.
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

// slice is how large a batch of a throttled rebuild may be: about what it may read in a second, so that it goes on evenly.
func slice(limits projection.Limits, eventsPerSecond int64) projection.Limits {
	if eventsPerSecond > 0 {
		limits.Events = int(min(int64(limits.Events), max(1, eventsPerSecond)))
	}
	return limits
}
