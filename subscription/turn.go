package subscription

import (
	"context"
	"time"
)

// turnTime is after how long whoever asks a filter lets others have their turn.
const turnTime = 5 * time.Millisecond

// turn is a follower's turn to ask its filter. Filters take processor time, up to milliseconds an event; the followers of one tenant
// take turns, so that all of them together take no more than one processor from other tenants.
type turn struct {
	of    chan struct{} // has one while somebody has it
	has   bool
	began time.Time
}

// take waits for the turn, unless it is the caller's still. It fails when ctx ends first.
func (t *turn) take(ctx context.Context) error {
	if t.has && time.Since(t.began) < turnTime {
		return nil
	}
	t.end()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case t.of <- struct{}{}:
		t.has, t.began = true, time.Now()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end gives the turn to others.
func (t *turn) end() {
	if t.has {
		t.has = false
		<-t.of
	}
}
