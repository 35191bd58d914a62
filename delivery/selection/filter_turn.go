package selection

import (
	"context"
	"time"
)

// turnTime is how long a caller may run its filter before others get their turn.
const turnTime = 5 * time.Millisecond

// FilterTurn is a follower's turn to run its filter or to match a large query, which may take milliseconds per event.
// The followers of one tenant take turns, so that together they use at most one processor.
type FilterTurn struct {
	Slot  chan struct{} // shared by the tenant's followers; has one element while one of them has the turn
	held  bool
	began time.Time
}

// Wait waits for the turn, unless the caller still has it. It fails if ctx ends first.
func (t *FilterTurn) Wait(ctx context.Context) error {
	if t.held && time.Since(t.began) < turnTime {
		return nil
	}
	t.End()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case t.Slot <- struct{}{}:
		t.held, t.began = true, time.Now()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// End gives up the turn.
func (t *FilterTurn) End() {
	if t.held {
		t.held = false
		<-t.Slot
	}
}
