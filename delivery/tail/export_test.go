package tail

import "time"

// LimitBehind changes how many bytes feeds that are behind their tails may have before each has to do with less.
func (t *Tails) LimitBehind(bytes int64) { t.maxBehind = bytes }

// Behind is how many bytes they have.
func (t *Tails) Behind() int64 { return t.behind.Load() }

// ReportSkippedAfter changes how long a follower is not told that events were passed over.
func (t *Tails) ReportSkippedAfter(d time.Duration) { t.reportSkippedAfter = d }

// Held returns the bytes that the tail of a feed has in memory, as the tail counts them, and the number of events.
func (f *Feed) Held() (bytes, events int) {
	f.tail.ring.mu.RLock()
	defer f.tail.ring.mu.RUnlock()
	return int(f.tail.ring.held.Load()), len(f.tail.ring.entries)
}

// Forgotten returns the highest position that the tail of a feed no longer has in memory.
func (f *Feed) Forgotten() int64 {
	floor, _ := f.tail.ring.place()
	return floor
}
