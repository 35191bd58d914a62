package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"
)

// sweepEvery is how often non-blocking subscribers look for new data.
const sweepEvery = 20 * time.Millisecond

func followFanout(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
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
	all, err := s.followEnd(transportSocket, f.subscribers, progress)
	if err != nil {
		return Result{}, err
	}
	defer func() {
		for _, subscriber := range all {
			subscriber.close()
		}
	}()
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	swept := &sweep{all: all, watch: latencyWatch{latencies: newHistogram(), begin: time.Now().Add(f.warmUp)}}
	if err := swept.prepare(); err != nil {
		return Result{}, err
	}
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		if err := swept.run(stop); err != nil {
			fail(err)
		}
	})
	fmt.Fprintf(progress, "appending %.0f events/s for %s ...\n", f.rate, f.duration)
	l := &stampedLoad{appenders: appenders, rate: f.rate, batch: f.batch}
	result := Result{
		Name:    f.subscribeName(fmt.Sprintf("--rate %.0f --subscribers %d", f.rate, f.subscribers)),
		Clients: f.clients, what: "append to delivery",
	}
	cpu := s.watch(ctx)
	measured, err := l.drive(running, f.warmUp, f.duration)
	result.tellUsage(cpu)
	over := time.Now()
	if err == nil {
		err = l.awaitLast(running, func(last int64) bool { return swept.watch.at.Load() >= last })
	}
	rest := time.Since(over)
	close(stop)
	done.Wait()
	if err != nil {
		return Result{}, errors.Join(err, causeOf(running, err))
	}
	result.tell(rest.Seconds()*1000, "ms", "from the last append until the last subscriber has had all")
	result.tell(float64(swept.watch.latencies.Max())/1000, "ms", "the longest from append to delivery")
	result.tell(float64(swept.watch.latencies.TotalCount())/measured.took.Seconds(), "/s", "deliveries")
	measured.latencies = swept.watch.latencies
	result.take(measured)
	result.GeneratorCPU = generatorShare(measured)
	err = s.finish(ctx, &result, "", nil, progress)
	return result, err
}

// sweep is a set of many subscribers in one goroutine. One waiting goroutine for each would take processor time from
// the service. watch.at is the position that all of them have reached.
type sweep struct {
	all   []*follower
	looks []func()
	watch latencyWatch
}

func (s *sweep) prepare() error {
	for _, subscriber := range s.all {
		look, err := subscriber.unwaiting()
		if err != nil {
			return err
		}
		s.looks = append(s.looks, look)
	}
	runtime.GC() // frees their buffers
	return nil
}

// run reads for the subscribers until stop is closed.
func (s *sweep) run(stop <-chan struct{}) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
		var slowest int64 = 1 << 62
		for i, subscriber := range s.all {
			s.looks[i]()
			if err := s.take(subscriber); err != nil {
				return fmt.Errorf("subscriber %d: %w", i+1, err)
			}
			slowest = min(slowest, subscriber.at)
		}
		s.watch.at.Store(slowest)
	}
}

// take reads what has arrived for one subscriber.
func (s *sweep) take(subscriber *follower) error {
	now := time.Now()
	for {
		what, frame, err := subscriber.step()
		if errors.Is(err, errNothing) {
			return nil
		}
		if err == nil && what == eventFrame {
			err = s.watch.count(frame, now)
		}
		if err != nil {
			return err
		}
	}
}
