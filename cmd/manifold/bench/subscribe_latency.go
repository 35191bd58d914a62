package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// latencyWatch measures what arrives at subscribers. Only one goroutine may call read or add.
type latencyWatch struct {
	latencies *hdrhistogram.Histogram
	begin     time.Time    // events sent before do not count
	at        atomic.Int64 // the position that all its subscribers have reached
}

// read reads a subscriber's next frame.
func (w *latencyWatch) read(subscriber *follower) error {
	kind, frame, err := subscriber.step()
	if err != nil || kind != eventFrame {
		return err
	}
	sent, err := sentAt(frame)
	if err == nil && !sent.Before(w.begin) {
		record(w.latencies, time.Since(sent))
	}
	return err
}

// sentAt returns when a stamped event was sent.
func sentAt(frame []byte) (time.Time, error) {
	nanoseconds, ok := numberIn(frame, sentField)
	if !ok {
		return time.Time{}, fmt.Errorf("an event does not say when it was sent: %.400q", frame)
	}
	return time.Unix(0, nanoseconds), nil
}

// followLatency has a goroutine for each subscriber.
func followLatency(ctx context.Context, r *run) error {
	all, err := r.followHead(r.transport)
	if err != nil {
		return err
	}
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	begin := time.Now().Add(r.warmUp)
	watches := make([]*latencyWatch, len(all))
	var readers sync.WaitGroup
	for i, subscriber := range all {
		w := &latencyWatch{latencies: newHistogram(), begin: begin}
		watches[i] = w
		readers.Go(func() {
			for {
				if err := w.read(subscriber); err != nil {
					fail(fmt.Errorf("subscriber %d: %w", i+1, err))
					return
				}
				w.at.Store(subscriber.at)
			}
		})
	}
	stamped, err := r.appendStamped(running, func(position int64) bool {
		return !slices.ContainsFunc(watches, func(w *latencyWatch) bool { return w.at.Load() < position })
	})
	fail(errEnough) // without effect if a subscriber has failed
	for _, subscriber := range all {
		subscriber.wire.close()
	}
	readers.Wait()
	if err != nil {
		return err
	}
	r.addLatencies(stamped.appends.since(begin), "append")
	stamped.latencies = newHistogram()
	for _, w := range watches {
		stamped.latencies.Merge(w.latencies)
	}
	r.Name = r.subscribeName(fmt.Sprintf("--rate %.0f --subscribers %d --transport %s --batch %d", r.rate, r.subscribers, r.transport, r.batch))
	r.Clients, r.latencyName = r.clients, "append to delivery"
	r.addFigure(float64(stamped.latencies.TotalCount())/stamped.took.Seconds(), "/s", "deliveries")
	return r.finish(ctx, stamped.load, nil)
}

// sweepInterval is how often followFanout reads for its subscribers.
const sweepInterval = 20 * time.Millisecond

// followFanout has one goroutine for all of its many subscribers. One for each would take processor time from the
// service.
func followFanout(ctx context.Context, r *run) error {
	all, err := r.followHead(transportSocket)
	if err != nil {
		return err
	}
	lookFor := make([]func(), len(all))
	for i, subscriber := range all {
		if lookFor[i], err = subscriber.makeNonBlocking(); err != nil {
			return err
		}
	}
	runtime.GC() // frees their buffers
	w := &latencyWatch{latencies: newHistogram(), begin: time.Now().Add(r.warmUp)}
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var reader sync.WaitGroup
	reader.Go(func() {
		fail(poll(running, sweepInterval, func() (bool, error) {
			slowest := all[0].at
			for i, subscriber := range all {
				lookFor[i]()
				var err error
				for err == nil {
					err = w.read(subscriber)
				}
				if !errors.Is(err, errNoData) {
					return false, fmt.Errorf("subscriber %d: %w", i+1, err)
				}
				slowest = min(slowest, subscriber.at)
			}
			w.at.Store(slowest)
			return false, nil
		}))
	})
	stamped, err := r.appendStamped(running, func(position int64) bool { return w.at.Load() >= position })
	fail(errEnough) // without effect if a subscriber has failed
	reader.Wait()
	if err != nil {
		return err
	}
	r.Name = r.subscribeName(fmt.Sprintf("--rate %.0f --subscribers %d", r.rate, r.subscribers))
	r.Clients, r.latencyName = r.clients, "append to delivery"
	r.addFigure(stamped.rest.Seconds()*1000, "ms", "from the last append until the last subscriber has had all")
	r.addFigure(float64(w.latencies.Max())/1000, "ms", "the longest from append to delivery")
	r.addFigure(float64(w.latencies.TotalCount())/stamped.took.Seconds(), "/s", "deliveries")
	stamped.latencies = w.latencies
	return r.finish(ctx, stamped.load, nil)
}

// followHead opens connections that follow the log from its end, and returns when all of them follow.
func (r *run) followHead(transport string) ([]*follower, error) {
	r.log("connecting %d subscribers", r.subscribers)
	all := make([]*follower, r.subscribers)
	for i := range all {
		var err error
		if all[i], err = r.follow(transport, "end"); err != nil {
			return nil, err
		}
		if err := all[i].readToHead(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// stampedLoad is what clients have appended at a steady rate, in events that contain the time when they were sent.
type stampedLoad struct {
	load
	appends samples // latencies of the appends by send time
	last    maxValue
	rest    time.Duration // from the last append until all was delivered
}

// patience is how long the delivery of the remaining events may take after the last append.
const patience = 30 * time.Second

var errLate = errors.New("some events were not delivered within " + patience.String() + " after the last append")

// appendStamped appends for the duration after the warm-up, or until ctx ends. Then it waits until delivered reports
// that the last position was delivered.
func (r *run) appendStamped(ctx context.Context, delivered func(position int64) bool) (*stampedLoad, error) {
	wires, err := r.connect(r.clients)
	if err != nil {
		return nil, err
	}
	l := &stampedLoad{}
	clients := make([]client, len(wires))
	for i, w := range wires {
		sender := newSender(w, i, streamLength, r.batch)
		clients[i] = func(context.Context) (int, error) {
			now := time.Now()
			appended, err := sender.appendStamped(now)
			if err != nil {
				return 0, err
			}
			l.appends.add(now, time.Since(now))
			l.last.raise(appended.position)
			return r.batch, nil
		}
	}
	r.log("appending %.0f events/s for %s", r.rate, r.duration)
	usage := r.watchUsage(ctx)
	l.load, err = drive(ctx, paced(clients, r.rate/float64(r.batch)), r.warmUp, r.duration, 0)
	r.addUsage(usage)
	if err != nil {
		return nil, err
	}
	over := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errLate)
	defer cancel()
	err = poll(ctx, 10*time.Millisecond, func() (bool, error) { return delivered(l.last.Load()), nil })
	l.rest = time.Since(over)
	return l, err
}
