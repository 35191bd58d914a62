package retention

import (
	"context"
	"sync"
	"time"
)

// pace keeps the time that something takes, by all who do it together, to a share of all time. It is safe for concurrent use.
type pace struct {
	share float64 // above 0; 1 and more: without a pause

	mu   sync.Mutex
	next time.Time // before which nobody begins
}

// keep does something when its time has come. It returns do's error, or that of ctx.
func (p *pace) keep(ctx context.Context, do func() error) error {
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
