package subscription

import (
	"context"
	"time"
)

// turnTime is how long a caller may run its filter before others get their turn.
const turnTime = 5 * time.Millisecond

// turn is a follower's turn to run its filter. Filters take processor time, up to milliseconds per event. The followers
// of one tenant take turns, so that all of them together use at most one processor.
type turn struct {
	of    chan struct{} // one entry while a follower has the turn
	has   bool
	began time.Time
}

// take waits for the turn, unless the caller still has it. It fails if ctx ends first.
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

// end gives up the turn.
func (t *turn) end() {
	if t.has {
		t.has = false
		<-t.of
	}
}
