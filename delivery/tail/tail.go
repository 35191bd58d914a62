package tail

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
)

// Limits of the slices in which logs are read.
const (
	sliceEvents = 2000
	sliceBytes  = 1 << 20
)

// tailReaches limits how far before the head a tail begins, wherever its first follower begins. Followers that
// reconnect after a restart are all close to the head.
const tailReaches = sliceEvents

// A tail that keeps up pauses between reads, so that the events appended meanwhile share one read and one slice per
// follower. A single event is read at once.
const (
	tailPause    = 5 * time.Millisecond
	tailPauseFor = 20 * time.Microsecond // per follower, because many followers take their time over each slice
	tailPauseMax = 50 * time.Millisecond
)

// feedReads limits how many slices are read at once for followers of one tenant's log that are behind the tail.
const feedReads = 2

// tail reads a tenant's log as it grows, once for all followers, while there are any.
type tail struct {
	tails      *Tails
	tenant     domain.TenantID
	ring       *ring
	target     atomic.Int64  // highest head reported by wake
	woken      chan struct{} // one entry if target has moved
	reads      chan struct{} // one entry for each slice being read for a feed
	filterTurn chan struct{} // one entry while a follower's filter runs

	followers atomic.Int64 // changed only under the lock of tails
	forgets   atomic.Int64 // calls of forget

	once  sync.Once
	begun bool // run has been started
	ctx   context.Context
	end   context.CancelFunc
	ended chan struct{}
}

func newTail(tails *Tails, tenant domain.TenantID) *tail {
	t := &tail{
		tails: tails, tenant: tenant, ring: newRing(&tails.share), woken: make(chan struct{}, 1), reads: make(chan struct{}, feedReads),
		filterTurn: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	t.ctx, t.end = context.WithCancel(context.Background())
	return t
}

// begin starts the tail if it is not running. position is where a follower begins, and head is the log's head. head
// must be read after Wake knows the tail, so that Wake reports all later events.
func (t *tail) begin(position, head int64) {
	t.once.Do(func() {
		t.ring.begin(min(max(position-1, head-tailReaches, 0), head))
		t.begun = true
		go t.run()
	})
	t.wake(head)
}

// stop ends a tail that nobody follows or will begin to follow.
func (t *tail) stop() {
	t.end()
	if t.begun {
		<-t.ended
	}
}

// wake reports a new head.
func (t *tail) wake(head int64) {
	for {
		known := t.target.Load()
		if head <= known {
			return
		}
		if t.target.CompareAndSwap(known, head) {
			break
		}
	}
	select {
	case t.woken <- struct{}{}:
	default:
	}
}

// awaitReadTurn waits for a turn to read a slice for a feed. The caller must call leave afterwards.
func (t *tail) awaitReadTurn(ctx context.Context) (leave func(), err error) {
	for entered, turns := range []chan struct{}{t.reads, t.tails.reads} {
		select {
		case turns <- struct{}{}:
		case <-ctx.Done():
			if entered > 0 {
				<-t.reads
			}
			return nil, context.Cause(ctx)
		}
	}
	return func() {
		<-t.tails.reads
		<-t.reads
	}, nil
}

// forget drops the events in memory and those of a read under way, because their tags in the log may have changed.
func (t *tail) forget() {
	t.forgets.Add(1)
	t.ring.forget()
}

func (t *tail) run() {
	defer close(t.ended)
	pause := time.NewTimer(0) // fires when the next read may begin
	defer pause.Stop()
	_, head := t.ring.place()
	looked := head
	for {
		for looked >= t.target.Load() {
			select {
			case <-t.ctx.Done():
				return
			case <-t.woken:
			}
		}
		select {
		case <-t.ctx.Done():
			return
		case <-pause.C:
		}
		began := time.Now()
		target, forgets := t.target.Load(), t.forgets.Load()
		events, gone, more, err := t.read(head)
		if err != nil {
			return // ctx has ended
		}
		if n := len(events); n > 0 {
			head = events[n-1].Position
		}
		if looked = head; !more {
			looked = max(head, target)
		}
		t.ring.append(events, looked, gone...)
		if t.forgets.Load() != forgets {
			t.ring.forget()
		}
		next := time.Until(began.Add(min(tailPause+time.Duration(t.followers.Load())*tailPauseFor, tailPauseMax)))
		if more {
			next = 0
		}
		pause.Reset(next)
	}
}

// read reads the events after a position, and the ranges missing there. more means that there may be more. read retries
// until it succeeds or the tail ends.
func (t *tail) read(after int64) (events []domain.Event, gone []selection.Missing, more bool, err error) {
	err = t.tails.try(t.ctx, t.tenant, always, func(ctx context.Context) error {
		q := domain.LogQuery{From: after + 1, Limit: sliceEvents, MaxBytes: min(sliceBytes, max(leastTail, t.tails.config.Bytes/4))}
		began := time.Now()
		slice, err := t.tails.config.Events.LogSlice(ctx, t.tenant, q)
		if err != nil {
			return err
		}
		if events, gone = slice.Events, nil; slice.RemovedTo > after {
			floors, err := t.tails.config.Events.Floors(ctx, t.tenant, nil, after+1)
			if err != nil {
				return err
			}
			gone = selection.MissingOf(floors, after)
		}
		if observe := t.tails.config.Observer.Read; observe != nil {
			observe(time.Since(began), len(events))
		}
		_, more = reached(events, q.Limit, q.MaxBytes, after)
		return nil
	})
	return events, gone, more, err
}

// reached returns the position up to which events are complete, given the limits they were read with. If there may be
// more, this is the last event. Otherwise it is at least the head that was known before the read. Positions become
// visible in order.
func reached(events []domain.Event, limit, maxBytes int, head int64) (upTo int64, more bool) {
	n := len(events)
	if n == 0 {
		return head, false
	}
	last := events[n-1].Position
	if n >= limit {
		return last, true
	}
	bytes := 0
	for i := range events {
		bytes += events[i].Bytes()
	}
	if bytes >= maxBytes {
		return last, true
	}
	return max(last, head), false
}
