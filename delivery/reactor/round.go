package reactor

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

// round calls a reactor for one tenant's events until nothing is due.
type round struct {
	feed
	reactors *Reactors
	of       *declared

	slots   chan struct{} // one entry for each event delivered and not yet answered
	results chan result
}

// result is the outcome of a call.
type result struct {
	delivery domain.Delivery
	err      error // returned by the handler
	back     bool  // the call was cancelled or never started
}

// busyWait is how long a receive waits for more events while calls are running.
const busyWait = 500 * time.Millisecond

func (r *round) run(ctx context.Context) (again time.Time, err error) {
	n := r.of.concurrency()
	r.slots, r.results = make(chan struct{}, n), make(chan result, n)
	answered := make(chan error, 1)
	go func() { answered <- r.answer(ctx) }()
	var calls sync.WaitGroup
	again, err = r.deliver(ctx, &calls)
	calls.Wait()
	close(r.results)
	if answerErr := <-answered; err == nil {
		err = answerErr
	}
	return again, err
}

// deliver receives events and starts calls until nothing is due and no call is running.
func (r *round) deliver(ctx context.Context, calls *sync.WaitGroup) (again time.Time, err error) {
	for {
		free, err := r.reserve(ctx)
		if err != nil {
			return again, err
		}
		busy := len(r.slots) > free
		var wait time.Duration
		if busy {
			wait = busyWait
		}
		deliveries, err := r.take(ctx, free, wait)
		r.release(free - len(deliveries))
		if err != nil {
			return again, err
		}
		if len(deliveries) > 0 {
			if again, err = r.begin(ctx, deliveries, calls); err != nil || !again.IsZero() {
				return again, err
			}
			continue
		}
		if busy {
			if r.projection != "" {
				// Without events to wait for, the receive may have returned at once.
				if _, err := r.projections.AwaitSettled(ctx, r.tenant, r.projection, r.settled, wait); err != nil {
					return again, err
				}
			}
			continue
		}
		more, again, err := r.rest(ctx)
		if !more || err != nil {
			return again, err
		}
	}
}

// reserve waits for a free slot, and takes all free slots.
func (r *round) reserve(ctx context.Context) (n int, err error) {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for n = 1; n < cap(r.slots); n++ {
		select {
		case r.slots <- struct{}{}:
		default:
			return n, nil
		}
	}
	return n, nil
}

func (r *round) release(n int) {
	for range n {
		<-r.slots
	}
}

// begin calls the reactor for delivered events. again is set if the projection has not reached them yet.
func (r *round) begin(ctx context.Context, deliveries []domain.Delivery, calls *sync.WaitGroup) (again time.Time, err error) {
	var documents []projection.EventDocument
	if r.projection != "" {
		events := make([]domain.Event, len(deliveries))
		for i := range deliveries {
			events[i] = deliveries[i].Event
		}
		if documents, err = r.projections.DocumentsOf(ctx, r.tenant, r.projection, events); err != nil {
			for _, d := range deliveries {
				r.results <- result{delivery: d, back: true}
			}
			return again, err
		}
	}
	if slices.ContainsFunc(deliveries, r.early) {
		again = r.places.standsStill(r.tenant, r.group)
	}
	for i, d := range deliveries {
		event := Event{Event: d.Event, Attempt: d.Attempt - d.Base}
		if d.Event.Gap != nil {
			r.reactors.config.Log.Warn("a reactor skipped an event without data", "reactor", r.of.Name, "tenant", r.tenant.String(),
				"position", d.Event.Position, "gap", string(d.Event.Gap.Reason))
			r.results <- result{delivery: d}
			continue
		}
		if documents != nil {
			document := documents[i]
			switch {
			case r.early(d):
				r.results <- result{delivery: d, back: true}
				continue
			case document.Waiting:
				r.results <- result{delivery: d, err: errParked}
				continue
			case document.ID == "":
				r.results <- result{delivery: d}
				continue
			}
			event.DocumentID, event.Document = document.ID, document.Document
		}
		calls.Go(func() { r.results <- r.call(ctx, d, event) })
	}
	return again, nil
}

// errParked is the reason why an event waits if its document is parked.
var errParked = domain.Errorf(domain.CodeConflict, "", "the projection has parked the event's document; the event is delivered when the document has applied it, or when its dead letter is replayed")

// call calls the handler for one event.
func (r *round) call(ctx context.Context, d domain.Delivery, event Event) result {
	began := time.Now()
	if ctx.Err() != nil || !began.Before(d.Expires) {
		return result{delivery: d, back: true}
	}
	// Do not run longer than the lease, because another call for the event may begin then.
	calling, cancel := context.WithDeadline(ctx, sooner(began.Add(r.of.timeout()), d.Expires))
	defer cancel()
	err := safely(func() error { return r.of.Handler(calling, r.tenant, event) })
	if err != nil && ctx.Err() != nil {
		return result{delivery: d, back: true} // not the event's fault
	}
	r.reactors.config.Called(r.of.Name, err != nil, time.Since(began))
	if err != nil {
		r.reactors.config.Log.Debug("a reactor has failed", "reactor", r.of.Name, "tenant", r.tenant.String(), "position", event.Position, "attempt", event.Attempt, "error", err)
	}
	return result{delivery: d, err: err}
}

// safely turns a panic in code outside this project into an error.
func safely(call func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the reactor panicked: %v", cause)
		}
	}()
	return call()
}

// answer answers for finished events, as many at a time as are ready.
func (r *round) answer(ctx context.Context) (failed error) {
	for first := range r.results {
		var all answers
		n := 1
		r.note(&all, first)
	more:
		for n < cap(r.slots) {
			select {
			case next, ok := <-r.results:
				if !ok {
					break more
				}
				r.note(&all, next)
				n++
			default:
				break more
			}
		}
		if err := all.give(ctx, r.groups, r.tenant, r.group); err != nil && failed == nil {
			failed = fmt.Errorf("answer for events: %w", err)
		}
		r.release(n)
	}
	return failed
}

func (r *round) note(all *answers, done result) {
	switch {
	case done.back:
		all.back = append(all.back, attemptOf(done.delivery))
	case done.err != nil:
		all.fail(done.delivery, domain.NackRetry, done.err.Error())
	default:
		all.done = append(all.done, attemptOf(done.delivery))
	}
}
