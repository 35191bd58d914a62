package retention

import (
	"context"
	"sync"
	"time"
)

// pace limits the time that an operation takes, over all concurrent callers, to a share of elapsed time. It is safe for
// concurrent use.
type pace struct {
	share float64 // above 0; at 1 or more there is no pause

	mu   sync.Mutex
	next time.Time // no call begins before this time
}

// run calls do when the pace allows it. It returns do's error, or the error of ctx.
func (p *pace) run(ctx context.Context, do func() error) error {
	for {
		p.mu.Lock()
		wait := time.Until(p.next)
		p.mu.Unlock()
		if wait <= 0 {
			break
		}
		pause := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		case <-pause.C:
		}
	}
	began := time.Now()
	err := do()
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.share < 1 {
		if p.next.Before(now) {
			p.next = now
		}
		p.next = p.next.Add(time.Duration(float64(now.Sub(began)) * (1/p.share - 1)))
	}
	return err
}
