package bench

import (
	"sync"
	"time"
)

// samples are latencies with their start times, so that they can be assigned to what happened at that time. Several
// goroutines may call add.
type samples struct {
	mu  sync.Mutex
	all []sample
}

type sample struct {
	at   time.Time
	took time.Duration
}

func (s *samples) add(at time.Time, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, sample{at, took})
}

// between returns the samples that began at or after from and before to. A zero time is no bound. latencies is nil if
// there are no samples.
func (s *samples) between(from, to time.Time) load {
	s.mu.Lock()
	defer s.mu.Unlock()
	var l load
	for _, one := range s.all {
		if !one.at.Before(from) && (to.IsZero() || one.at.Before(to)) {
			l.count(1, one.took)
		}
	}
	return l
}

// tellLatencies adds the median and the 99th percentile of the load, or nothing if the load is empty.
func (r *Result) tellLatencies(l load, name string) {
	if l.latencies == nil {
		return
	}
	r.tell(milliseconds(l.latencies, 50), "ms", "%s, p50", name)
	r.tell(milliseconds(l.latencies, 99), "ms", "%s, p99", name)
}
