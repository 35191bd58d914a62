package rebuild

import (
	"context"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

// manner is how a rebuild folds.
type manner struct {
	log    projection.Log
	turn   func(ctx context.Context) error // as in projection.Replay
	pacing *projection.Pacing              // as in projection.Replay
	seeds  projection.Seeds                // as in projection.Replay
}

// hurried is for the swap, while the live build is paused: nothing delays it.
func (a *attempt) hurried() manner { return manner{log: a.r.config.Store} }

// steady gives live work priority, and keeps to the rebuild's rate.
func (a *attempt) steady() manner {
	m := manner{log: countedLog{a.r.config.Store, a.rate, a.began}, turn: a.awaitTurn, seeds: a.r.config.Seeds}
	if a.row.FromLog {
		m.seeds = nil
	}
	return m
}

// paced is steady, and pauses for appends, unless the rebuild has fallen behind.
func (a *attempt) paced() manner {
	m := a.steady()
	m.pacing = a.pacing
	return m
}

// awaitTurn waits until live work leaves room, and until the rebuild's rate allows for the events of the previous
// readings.
func (a *attempt) awaitTurn(ctx context.Context) error {
	if err := a.giveWay(ctx); err != nil || a.rate == nil {
		return err
	}
	return a.rate.wait(ctx)
}

// countedLog is a log whose readings count for a rate. Replicas may answer them.
type countedLog struct {
	projection.Log
	rate *throttle // nil: unlimited
	asOf time.Time // replicas must have what was committed then
}

// ReadLog is projection.Log's.
func (l countedLog) ReadLog(ctx context.Context, tenant domain.TenantID, q domain.LogQuery) ([]domain.Event, error) {
	q.AsOf = l.asOf
	events, err := l.Log.ReadLog(ctx, tenant, q)
	l.rate.spend(len(events))
	return events, err
}

// ReadByStream is projection.Log's.
func (l countedLog) ReadByStream(ctx context.Context, tenant domain.TenantID, q domain.ByStreamQuery) ([]domain.Event, error) {
	q.AsOf = l.asOf
	events, err := l.Log.ReadByStream(ctx, tenant, q)
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
	if t == nil {
		return
	}
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
