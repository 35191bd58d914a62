package projection

import (
	"context"
	"time"
)

// backlog is where a paced pair and its log were when the pauses began.
type backlog struct{ seen, head int64 }

// gainsOn reports whether a pair has folded one and a half times as many events as its log has grown since then. While
// it has not, it does not pause, so it catches up.
func (b *backlog) gainsOn(seen, head int64) bool { return 2*(seen-b.seen) >= 3*(head-b.head) }

// isPaced reports whether a pair that has more to fold pauses after a batch: appends are in progress, and it is more
// than a reading behind.
func (t *turn) isPaced(batch *prepared) bool {
	p := t.pair
	if batch.reading.Head-batch.upTo <= int64(t.config.CatchUp.Events) || t.config.Pacing.appending() == 0 {
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
	t.pause = t.config.Pacing.pauseAfter(worked)
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
