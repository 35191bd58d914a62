package selection

import (
	"context"
	"time"
)

// turnTime is how long a caller may run its filter before others get their turn.
const turnTime = 5 * time.Millisecond

// Turn is a follower's turn to run its filter, which may take milliseconds per event. The followers of one tenant take
// turns, so that together they use at most one processor.
type Turn struct {
	Of    chan struct{} // shared by the tenant's followers; has one element while one of them has the turn
	has   bool
	began time.Time
}

// Take waits for the turn, unless the caller still has it. It fails if ctx ends first.
func (t *Turn) Take(ctx context.Context) error {
	if t.has && time.Since(t.began) < turnTime {
		return nil
	}
	t.End()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case t.Of <- struct{}{}:
		t.has, t.began = true, time.Now()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// End gives up the turn.
func (t *Turn) End() {
	if t.has {
		t.has = false
		<-t.Of
	}
}
