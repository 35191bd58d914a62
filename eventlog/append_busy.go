package eventlog

import (
	"sync"
	"time"
)

// busyTime adds up the time during which at least one writer runs.
type busyTime struct {
	mu      sync.Mutex
	writers int
	since   time.Time // when the first of them began
	total   time.Duration
}

func (b *busyTime) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.writers++; b.writers == 1 {
		b.since = time.Now()
	}
}

func (b *busyTime) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.writers--; b.writers == 0 {
		b.total += time.Since(b.since)
	}
}

// AppendingFor returns how long appends have been in progress in this process so far. Time during which several were in
// progress counts once.
func (s *Log) AppendingFor() time.Duration {
	b := &s.writers.busy
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.writers == 0 {
		return b.total
	}
	return b.total + time.Since(b.since)
}
