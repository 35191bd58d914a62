package subscription

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// The slices in which logs are read.
const (
	sliceEvents = 2000
	sliceBytes  = 1 << 20
)

// tailReaches is how far below the head a tail begins at most, where its first follower does: those who come again behind a
// restart are nearly there, all of them.
const tailReaches = sliceEvents

// Reads of a tail that follows closely begin so long after one another, so that what is appended meanwhile is one read and
// one slice for each follower. An event that comes alone is read at once.
const (
	tailPause    = 5 * time.Millisecond
	tailPauseFor = 20 * time.Microsecond // each follower: many of them take their time, slice by slice
	tailPauseMax = 50 * time.Millisecond
)

// feedReads is how many slices are read at the same time for those who follow one tenant's log further back.
const feedReads = 2

// tail reads a tenant's log as it grows, once for all who follow it, while there are any.
type tail struct {
	tails  *Tails
	tenant domain.TenantID
	ring   *ring
	target atomic.Int64  // the highest head that it was told of
	woken  chan struct{} // has one where target has moved
	reads  chan struct{} // has one for each slice that is being read for a feed
	asking chan struct{} // has one while a follower's filter is asked

	followers atomic.Int64 // changed under the lock of tails only

	once  sync.Once
	begun bool // run runs, or has
	ctx   context.Context
	end   context.CancelFunc
	ended chan struct{}
}

func newTail(tails *Tails, tenant domain.TenantID) *tail {
	t := &tail{
		tails: tails, tenant: tenant, ring: newRing(&tails.share), woken: make(chan struct{}, 1), reads: make(chan struct{}, feedReads),
		asking: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	t.ctx, t.end = context.WithCancel(context.Background())
	return t
}

// begin has the tail read, unless it does. It is for a follower that begins at a position while the log's head is as given; that
// was read when Wake knew the tail, so that it tells of all that came later.
func (t *tail) begin(position, head int64) {
	t.once.Do(func() {
		t.ring.begin(min(max(position-1, head-tailReaches, 0), head))
		t.begun = true
		go t.run()
	})
	t.wake(head)
}

// stop ends the tail, which nobody follows or begins any more.
func (t *tail) stop() {
	t.end()
	if t.begun {
		<-t.ended
	}
}

// wake tells of a head.
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

// enter waits for a turn to read a slice for a feed; leave ends it.
func (t *tail) enter(ctx context.Context) (leave func(), err error) {
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

func (t *tail) run() {
	defer close(t.ended)
	pause := time.NewTimer(0) // runs out when the next read may begin
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
		target := t.target.Load()
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
		next := time.Until(began.Add(min(tailPause+time.Duration(t.followers.Load())*tailPauseFor, tailPauseMax)))
		if more {
			next = 0
		}
		pause.Reset(next)
	}
}

// read reads what follows a position, and what is gone of that; more where there may be more. It tries until it can, or the tail ends.
func (t *tail) read(after int64) (events []domain.Event, gone []missing, more bool, err error) {
	err = t.tails.try(t.ctx, t.tenant, always, func(ctx context.Context) error {
		q := domain.LogQuery{From: after + 1, Limit: sliceEvents, MaxBytes: min(sliceBytes, max(leastTail, t.tails.config.Bytes/4))}
		began := time.Now()
		slice, err := t.tails.config.Store.LogSlice(ctx, t.tenant, q)
		if err != nil {
			return err
		}
		if events, gone = slice.Events, nil; slice.RemovedTo > after {
			floors, err := t.tails.config.Store.Floors(ctx, t.tenant, nil, after+1)
			if err != nil {
				return err
			}
			gone = missingOf(floors, after)
		}
		if observe := t.tails.config.Observer.Read; observe != nil {
			observe(time.Since(began), len(events))
		}
		_, more = reached(events, q.Limit, q.MaxBytes, after)
		return nil
	})
	return events, gone, more, err
}

// reached says up to where events are all that a log has, by how they were asked for: up to the last of them where there may
// be more, else up to its head at least, as it was known before they were read. Positions become visible in order.
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
		bytes += len(events[i].Data) + len(events[i].Metadata)
	}
	if bytes >= maxBytes {
		return last, true
	}
	return max(last, head), false
}
