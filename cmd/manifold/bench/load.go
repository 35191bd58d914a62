package bench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/time/rate"
)

// load is what closed-loop clients did in the measured time.
type load struct {
	events    int64
	took      time.Duration
	latencies *hdrhistogram.Histogram // nil: none
	processor time.Duration           // used by this process meanwhile
}

func (l load) perSecond() float64 {
	if l.took <= 0 {
		return 0
	}
	return round(float64(l.events)/l.took.Seconds(), 0)
}

// add adds a request.
func (l *load) add(events int, took time.Duration) {
	l.events += int64(events)
	if l.latencies == nil {
		l.latencies = newHistogram()
	}
	record(l.latencies, took)
}

// These are the bounds of recorded latencies: from 1 microsecond to a minute.
const (
	shortest = 1
	longest  = 60_000_000
)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(shortest, longest, 3) }

// record adds a latency. One above the longest counts as the longest.
func record(h *hdrhistogram.Histogram, took time.Duration) {
	_ = h.RecordValue(min(max(took.Microseconds(), shortest), longest))
}

// client makes one request and returns the number of its events. Only one goroutine calls it.
type client func(ctx context.Context) (events int, err error)

// errEnough is the cause with which a load is stopped as planned.
var errEnough = errors.New("enough was measured")

// drive runs the clients, after a warm-up, until the duration is over or (with most > 0) until they have counted most
// events. It ends at the first error, or when ctx ends.
func drive(ctx context.Context, clients []client, warmUp, duration time.Duration, most int) (load, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var measuring atomic.Bool
	var events atomic.Int64
	var shards [16]struct { // a histogram per client would need much memory
		sync.Mutex
		*hdrhistogram.Histogram
	}
	for i := range shards {
		shards[i].Histogram = newHistogram()
	}
	var done sync.WaitGroup
	for i, c := range clients {
		done.Go(func() {
			shard := &shards[i%len(shards)]
			for ctx.Err() == nil {
				measured, start := measuring.Load(), time.Now()
				n, err := c(ctx)
				took := time.Since(start)
				if err != nil {
					cancel(err) // without effect if ctx has ended
					return
				}
				if !measured {
					continue
				}
				shard.Lock()
				record(shard.Histogram, took)
				shard.Unlock()
				if total := events.Add(int64(n)); most > 0 && total >= int64(most) {
					cancel(errEnough)
				}
			}
		})
	}
	pause(ctx, warmUp)
	begin, used := time.Now(), processorTime()
	measuring.Store(true)
	if most > 0 {
		<-ctx.Done()
	} else {
		pause(ctx, duration)
	}
	result := load{events: events.Load(), took: time.Since(begin), latencies: newHistogram(), processor: processorTime() - used}
	cancel(errEnough)
	done.Wait()
	if err := context.Cause(ctx); !errors.Is(err, errEnough) {
		return load{}, err
	}
	for i := range shards {
		result.latencies.Merge(shards[i].Histogram)
	}
	return result, nil
}

// paced limits clients to a number of requests per second, together.
func paced(clients []client, perSecond float64) []client {
	limiter := rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond/10)))
	slowed := make([]client, len(clients))
	for i, c := range clients {
		slowed[i] = func(ctx context.Context) (int, error) {
			if err := limiter.Wait(ctx); err != nil {
				return 0, err
			}
			return c(ctx)
		}
	}
	return slowed
}

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

// since returns the samples that began at or after a time, or nil if there are none.
func (s *samples) since(from time.Time) *hdrhistogram.Histogram {
	return s.between(from, time.Now().Add(time.Hour))
}

// between returns the samples that began at or after from and before to, or nil if there are none.
func (s *samples) between(from, to time.Time) *hdrhistogram.Histogram {
	s.mu.Lock()
	defer s.mu.Unlock()
	var l load
	for _, one := range s.all {
		if !one.at.Before(from) && one.at.Before(to) {
			l.add(1, one.took)
		}
	}
	return l.latencies
}

// maxValue is the highest number that it was given. Several goroutines may use it.
type maxValue struct{ atomic.Int64 }

func (m *maxValue) raise(to int64) {
	for last := m.Load(); last < to && !m.CompareAndSwap(last, to); {
		last = m.Load()
	}
}
