package bench

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// These are the bounds of recorded latencies: from 1 microsecond to a minute, with three digits.
const (
	lowest  = 1
	highest = 60_000_000
	digits  = 3
)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(lowest, highest, digits) }

// milliseconds returns a percentile in milliseconds.
func milliseconds(h *hdrhistogram.Histogram, percent float64) float64 {
	return round(float64(h.ValueAtPercentile(percent))/1000, 3)
}

// load is what closed-loop clients did in the measured time.
type load struct {
	events    int64
	took      time.Duration
	latencies *hdrhistogram.Histogram
	processor time.Duration // used by this process meanwhile
}

func (l load) perSecond() float64 { return round(float64(l.events)/l.took.Seconds(), 0) }

// client makes one request and returns the number of its events. Only one goroutine calls it.
type client func(ctx context.Context) (events int, err error)

// drive runs the clients, after a warm-up, until the duration is over or (with most > 0) until they have counted most
// events. It ends at the first error.
func drive(ctx context.Context, clients []client, warmUp, duration time.Duration, most int) (load, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	measuring := make(chan struct{})
	var events atomic.Int64
	var shards [16]struct {
		sync.Mutex
		*hdrhistogram.Histogram
	}
	for i := range shards {
		shards[i].Histogram = newHistogram()
	}
	var done sync.WaitGroup
	for i, c := range clients {
		done.Go(func() {
			shard, measured := &shards[i%len(shards)], false
			for ctx.Err() == nil {
				if !measured {
					select {
					case <-measuring:
						measured = true
					default:
					}
				}
				start := time.Now()
				n, err := c(ctx)
				if err != nil {
					if ctx.Err() == nil {
						cancel(err)
					}
					return
				}
				if !measured {
					continue
				}
				took := time.Since(start)
				shard.Lock()
				// A latency above the highest counts as the highest.
				_ = shard.RecordValue(min(max(took.Microseconds(), lowest), highest))
				shard.Unlock()
				if total := events.Add(int64(n)); most > 0 && total >= int64(most) {
					cancel(errEnough)
				}
			}
		})
	}
	pause(ctx, warmUp)
	begin, used := time.Now(), processorTime()
	close(measuring)
	if most > 0 {
		<-ctx.Done()
	} else {
		pause(ctx, duration)
	}
	counted, took, used := events.Load(), time.Since(begin), processorTime()-used
	cancel(errEnough)
	done.Wait()
	if err := context.Cause(ctx); !errors.Is(err, errEnough) {
		return load{}, err
	}
	result := load{events: counted, took: took, latencies: newHistogram(), processor: used}
	for i := range shards {
		result.latencies.Merge(shards[i].Histogram)
	}
	return result, nil
}

var errEnough = errors.New("enough was measured")

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// together makes every client send one request, all at the same time.
func together(ctx context.Context, clients []client) (load, error) {
	var mu sync.Mutex
	round := load{latencies: newHistogram()}
	var failed error
	var done sync.WaitGroup
	for _, c := range clients {
		done.Go(func() {
			start := time.Now()
			n, err := c(ctx)
			took := time.Since(start)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			round.count(n, took)
		})
	}
	done.Wait()
	return round, failed
}

// count adds one request.
func (l *load) count(events int, took time.Duration) {
	l.events += int64(events)
	if l.latencies == nil {
		l.latencies = newHistogram()
	}
	// A latency above the highest counts as the highest.
	_ = l.latencies.RecordValue(min(max(took.Microseconds(), lowest), highest))
}

// add adds the counts of another load.
func (l *load) add(other load) {
	l.events += other.events
	if l.latencies == nil {
		l.latencies = newHistogram()
	}
	l.latencies.Merge(other.latencies)
}

// generatorShare returns the share of all processors' time that this process used.
func generatorShare(l load) float64 {
	return round(l.processor.Seconds()/l.took.Seconds()/float64(runtime.NumCPU()), 3)
}
