package projection

import (
	"context"
	"sync"
	"time"
)

// Pacing makes the folding of backlogs leave room for appends: while appends are in progress, it pauses after each
// reading. A process has one Pacing for all its projections and rebuilds, so several backlogs take hardly more than one
// (docs/decisions/0076-backlogs-leave-room-for-appends.md). It is safe for concurrent use; a nil Pacing never pauses.
type Pacing struct {
	appendingFor func() time.Duration
	perWork      float64       // a pause is at most so many times as long as the work before it
	longest      time.Duration // limits one pause

	mu    sync.Mutex
	at    time.Time     // when share was measured
	total time.Duration // appendingFor then
	share float64       // of the time before, how much had appends in progress
	free  time.Time     // when the pauses owed so far end
}

const (
	pausePerWork  = 4
	longestPause  = 2 * time.Second
	shareInterval = 100 * time.Millisecond // the share is measured over at least this time
	lowShare      = 0.1                    // below this share there are no pauses
	pacedEvents   = 2000                   // the most in a reading between two pauses: few, so that no append waits long
)

// NewPacing returns the Pacing of a process in which appends have been in progress for as long as appendingFor returns.
func NewPacing(appendingFor func() time.Duration) *Pacing {
	return &Pacing{appendingFor: appendingFor, perWork: pausePerWork, longest: longestPause, at: time.Now()}
}

// appending returns the share of the recent time in which appends were in progress; 0 if it is low.
func (p *Pacing) appending() float64 {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.at) >= shareInterval {
		total := p.appendingFor()
		p.share = min(1, float64(total-p.total)/float64(now.Sub(p.at)))
		p.at, p.total = now, total
	}
	if p.share < lowShare {
		return 0
	}
	return p.share
}

// pauseAfter returns how long to pause after work that took so long.
func (p *Pacing) pauseAfter(worked time.Duration) time.Duration {
	share := p.appending()
	if share == 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(time.Duration(float64(worked) * share * p.perWork))
	if latest := now.Add(p.longest); p.free.After(latest) {
		p.free = latest
	}
	return p.free.Sub(now)
}

// paced returns the limits of a reading between two pauses.
func (l Limits) paced() Limits {
	l.Events = min(l.Events, pacedEvents)
	return l
}

// pauseForAppends pauses after a reading was read and folded. During the pause the Replay must not read, fold or save.
func (r *Replay) pauseForAppends(ctx context.Context, p *prepared) error {
	pausing := time.Now()
	timer := time.NewTimer(r.Pacing.pauseAfter(pausing.Sub(p.began)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// Documents are saved after as much work as without the pause.
	r.pending.since = r.pending.since.Add(time.Since(pausing))
	return nil
}
