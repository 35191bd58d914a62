package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

func followLatency(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
	s, err := quietService(ctx, f, progress)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	appenders, err := s.connect(f.clients)
	if err != nil {
		return Result{}, err
	}
	defer disconnect(appenders)
	all, err := s.followEnd(f.transport, f.subscribers, progress)
	if err != nil {
		return Result{}, err
	}
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	begin := time.Now().Add(f.warmUp)
	watched := make([]*latencyWatch, len(all))
	var ended atomic.Bool
	var done sync.WaitGroup
	for i, subscriber := range all {
		w := &latencyWatch{latencies: newHistogram(), begin: begin}
		watched[i] = w
		done.Go(func() {
			for {
				what, frame, err := subscriber.step()
				if err == nil && what == eventFrame {
					err = w.count(frame, time.Now())
				}
				if err != nil {
					if !ended.Load() {
						fail(fmt.Errorf("subscriber %d: %w", i+1, err))
					}
					return
				}
				w.at.Store(subscriber.at)
			}
		})
	}
	fmt.Fprintf(progress, "appending %.0f events/s for %s ...\n", f.rate, f.duration)
	l := &stampedLoad{appenders: appenders, rate: f.rate, batch: f.batch}
	result := Result{
		Name:    f.subscribeName(fmt.Sprintf("--rate %.0f --subscribers %d --transport %s --batch %d", f.rate, f.subscribers, f.transport, f.batch)),
		Clients: f.clients, what: "append to delivery",
	}
	cpu := s.watch(ctx)
	measured, err := l.drive(running, f.warmUp, f.duration)
	result.tellUsage(cpu)
	if err == nil {
		err = l.awaitLast(running, func(last int64) bool {
			for _, w := range watched {
				if w.at.Load() < last {
					return false
				}
			}
			return true
		})
	}
	ended.Store(true)
	for _, subscriber := range all {
		subscriber.close()
	}
	done.Wait()
	if err != nil {
		return Result{}, errors.Join(err, causeOf(running, err))
	}
	result.tellLatencies(l.took.between(begin, time.Time{}), "append")
	measured.latencies = newHistogram()
	for _, w := range watched {
		measured.latencies.Merge(w.latencies)
	}
	result.take(measured)
	result.tell(float64(measured.latencies.TotalCount())/measured.took.Seconds(), "/s", "deliveries")
	result.GeneratorCPU = generatorShare(measured)
	err = s.finish(ctx, &result, "", nil, progress)
	return result, err
}

// causeOf returns the cause of a context's end, unless err already contains it.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return cause
	}
	return nil
}

// latencyWatch measures what arrives at one subscriber. Only one goroutine may call count.
type latencyWatch struct {
	latencies *hdrhistogram.Histogram
	begin     time.Time // events sent before do not count
	at        atomic.Int64
}

func (w *latencyWatch) count(frame []byte, now time.Time) error {
	sent, err := sentAt(frame)
	if err != nil || sent.Before(w.begin) {
		return err
	}
	// A latency above the highest counts as the highest.
	_ = w.latencies.RecordValue(min(max(now.Sub(sent).Microseconds(), lowest), highest))
	return nil
}

// followEnd opens connections that follow the log from its end, and returns when all of them follow.
func (s *service) followEnd(transport string, count int, progress io.Writer) (all []*follower, err error) {
	fmt.Fprintf(progress, "connecting %d subscribers ...\n", count)
	defer func() {
		if err != nil {
			for _, subscriber := range all {
				subscriber.close()
			}
		}
	}()
	for range count {
		subscriber, err := s.follow(transport, "end")
		if err != nil {
			return all, err
		}
		all = append(all, subscriber)
		if err := subscriber.awaitEnd(); err != nil {
			return all, err
		}
	}
	return all, nil
}
