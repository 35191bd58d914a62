package consume

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// Round consumes a group until nothing is due. It receives events, hands them to Handle, extends their leases while
// they are worked on, and settles them by the outcomes that Settle reports.
//
// One goroutine receives and calls Handle. Another settles outcomes, as many at a time as are ready. A third extends
// leases. Work that Handle starts with Go may continue after it has returned. A round ends when all work is done and
// settled.
type Round struct {
	Group

	// Room returns how many events to receive now, given how many are not settled yet. If it returns 0 and no time, the
	// round waits until an event is settled. If it returns 0 and a time, the round ends and returns that time.
	Room func(unsettled int) (events int, until time.Time)
	// Handle works on events, in the order given, or starts to. For each of them, Settle must be called once before
	// Handle returns, or by a function started with Go. If Handle returns a time or an error, the round ends and
	// returns it.
	Handle func(ctx context.Context, deliveries []domain.Delivery) (nextRun time.Time, err error)
	// Record stores the Lines of outcomes while the outcomes are settled. Nil if there are none.
	Record func(ctx context.Context, lines []any) error

	// Lease is the length of the leases, which are extended until the events are settled. 0 means the group's
	// AckTimeout, without extension.
	Lease time.Duration
	// Linger is how long the round waits for more events before it ends. It does not wait for more if the source is a
	// projection.
	Linger time.Duration
	// EndsBusy ends the receives when nothing is due, although events are not settled yet. Otherwise the round keeps
	// receiving meanwhile.
	EndsBusy      bool
	Together      bool          // as in group.Receive
	SettleTimeout time.Duration // of settling; also after ctx has ended, so that finished work is not repeated

	stop     context.CancelFunc // ends the receives
	work     sync.WaitGroup
	outcomes chan Outcome
	released chan struct{} // one entry after events were settled

	mu        sync.Mutex
	held      map[domain.EventID]held // events that are leased and not settled
	unsettled int
	failure   error // first error of settling
}

// outcomesAhead limits how many outcomes may wait to be settled. Above it, Settle waits.
const outcomesAhead = 256

// busyWait is how long a receive waits for more events while others are not settled.
const busyWait = 500 * time.Millisecond

// Run runs the round until nothing is due, ctx ends, or an error occurs. The result nextRun is when something will be
// due; zero means never. A round may be run once.
func (r *Round) Run(ctx context.Context) (nextRun time.Time, err error) {
	r.outcomes, r.released = make(chan Outcome, outcomesAhead), make(chan struct{}, 1)
	r.held = make(map[domain.EventID]held)
	receiving, stop := context.WithCancel(ctx)
	defer stop()
	r.stop = stop
	var settling, extending sync.WaitGroup
	settling.Go(func() { r.settleAll(context.WithoutCancel(ctx)) })
	extension, endExtension := context.WithCancel(context.WithoutCancel(ctx))
	if r.Lease > 0 {
		extending.Go(func() { r.extendLeases(extension) })
	}
	nextRun, err = r.receiveAll(receiving)
	if errors.Is(err, context.Canceled) && receiving.Err() != nil && ctx.Err() == nil {
		err = nil // Stop was called
	}
	r.work.Wait()
	close(r.outcomes)
	settling.Wait()
	endExtension()
	extending.Wait()
	if err == nil {
		err = r.failure
	}
	return nextRun, err
}

// Go runs a part of the work that Handle has started. The round waits for it.
func (r *Round) Go(work func()) { r.work.Go(work) }

// Stop makes the round receive no more events. The work in progress continues.
func (r *Round) Stop() { r.stop() }

// receiveAll receives events and hands them over until nothing is due.
func (r *Round) receiveAll(ctx context.Context) (nextRun time.Time, err error) {
	for {
		events, busy, until, err := r.awaitRoom(ctx)
		if events == 0 || err != nil {
			return until, err
		}
		busy = busy && !r.EndsBusy
		wanted := group.Receive{Batch: min(events, domain.MaxBatchSize), Lease: r.Lease, Together: r.Together}
		switch {
		case busy:
			wanted.Wait = busyWait
		case r.Projection == "":
			wanted.Wait = r.Linger
		}
		deliveries, err := r.receive(ctx, wanted)
		if err != nil {
			return nextRun, err
		}
		if len(deliveries) > 0 {
			r.hold(deliveries)
			if nextRun, err = r.Handle(ctx, deliveries); err != nil || !nextRun.IsZero() {
				return nextRun, err
			}
			continue
		}
		if busy {
			if r.Projection != "" {
				// Without events to wait for, the receive may have returned at once.
				if _, err := r.awaitSettled(ctx, busyWait); err != nil {
					return nextRun, err
				}
			}
			continue
		}
		now, at, err := r.nextDue(ctx)
		if !now || err != nil {
			return at, err
		}
	}
}

// awaitRoom returns how many events to receive, and whether others are not settled yet. If there is no room, it waits
// for events to be settled, or returns until when there is none.
func (r *Round) awaitRoom(ctx context.Context) (events int, busy bool, until time.Time, err error) {
	for {
		r.mu.Lock()
		unsettled := r.unsettled
		r.mu.Unlock()
		events, until = r.Room(unsettled)
		if events > 0 || !until.IsZero() {
			return events, unsettled > 0, until, nil
		}
		select {
		case <-r.released:
		case <-ctx.Done():
			return 0, false, until, ctx.Err()
		}
	}
}
