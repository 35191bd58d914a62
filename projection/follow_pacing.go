package projection

import (
	"context"
	"sync"
	"time"
)

// pacing makes the folding of backlogs leave room for appends: while appends are in progress, a worker pauses after
// each reading. All workers of a process share it, so several backlogs take no more than one
// (docs/decisions/0076-backlogs-leave-room-for-appends.md).
type pacing struct {
	appendingFor func() time.Duration // as in RunnerConfig; nil: nothing pauses
	perWork      float64              // how many times as long as it has worked a worker pauses, at most
	longest      time.Duration        // limits one pause

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
	lowShare      = 0.1                    // nothing pauses below this share
	pacedEvents   = 2000                   // of a reading between two pauses: few, so that no append waits long
)

// appending returns the share of the recent time in which appends were in progress; 0 if it is low.
func (p *pacing) appending() float64 {
	if p.appendingFor == nil {
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
func (p *pacing) pauseAfter(worked time.Duration) time.Duration {
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

// backlog is where a paced pair and its log were when the pauses began.
type backlog struct{ seen, head int64 }

// gainsOn reports whether a pair has folded one and a half times as many events as its log has grown since then. While
// it has not, it does not pause, so it catches up.
func (b *backlog) gainsOn(seen, head int64) bool { return 2*(seen-b.seen) >= 3*(head-b.head) }

// isPaced reports whether a pair that has more to fold pauses after a batch: appends are in progress, and it is more
// than a reading behind.
func (t *turn) isPaced(batch *prepared) bool {
	p := t.pair
	if batch.reading.Head-batch.upTo <= int64(t.config.CatchUp.Events) || t.pacing.appending() == 0 {
		p.backlog = nil
		return false
	}
	if p.backlog == nil {
		p.backlog = &backlog{batch.from - 1, batch.reading.Head}
	}
	return true
}

// recordPause sets how long a paced pair pauses after a batch.
func (t *turn) recordPause(batch *prepared, worked time.Duration) {
	t.pause = t.pacing.pauseAfter(worked)
	if !t.pair.backlog.gainsOn(batch.upTo, batch.reading.Head) {
		t.pause = 0
	}
}

// sleep lets the pair's pause pass while it keeps its worker. It returns false if another pair needs the worker: the
// rest of the pause is then left.
func (t *turn) sleep(ctx context.Context, replay *Replay) bool {
	began := time.Now()
	timer := time.NewTimer(t.pause)
	defer timer.Stop()
	for {
		needed := t.neededByOthers()
		if needed == nil {
			t.pause -= time.Since(began)
			return false
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-needed:
			continue
		}
		t.pause = 0
		// Documents are saved after as much work as without the pause.
		replay.pending.since = replay.pending.since.Add(time.Since(began))
		return true
	}
}

// neededByOthers returns a channel that is closed when another pair may need the turn's worker; nil: one needs it.
func (t *turn) neededByOthers() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pair.gone || t.pool.ready.wouldRun(t.pair.tenant) {
		return nil
	}
	if t.pool.needed == nil {
		t.pool.needed = make(chan struct{})
	}
	return t.pool.needed
}

// notifyNeeded wakes up the pool's pausing workers if a pair waits for a turn.
func (pool *workerPool) notifyNeeded() {
	if pool.needed != nil && pool.ready.waiting > 0 {
		close(pool.needed)
		pool.needed = nil
	}
}
