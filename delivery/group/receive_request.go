package group

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// maxReceiveBytes limits what one receive is given. A single event may exceed it.
const maxReceiveBytes = 8 << 20

// errDropped means that a partition was dropped from memory and must be opened again.
var errDropped = errors.New("the partition was dropped")

// receive is a consumer's request for events. It may wait at several partitions, and the first one with events serves
// it.
type receive struct {
	batch      int                  // 0: the group's
	member     domain.GroupMemberID // zero: the group has no partitions
	upTo       int64                // nothing new after this position; 0: no bound
	lease      time.Duration        // 0: the group's AckTimeout
	topUpBytes int                  // bytes; not 0: it tops up another receive, with at most these
	// interrupted says how it takes events whose last delivery was interrupted.
	interrupted interruptedPolicy
	ack         *answer       // of a group without partitions: the step that serves the receive applies it first; may be nil
	done        chan struct{} // closed when answered
	ready       []domain.Delivery
	err         error

	mu          sync.Mutex
	partitions  []*partition // where it waits
	state       receiveState
	giver       *partition   // partition that answered it with events
	looksLeft   int          // answered after so many more partitions without events; negative: it keeps waiting
	lookedAt    []*partition // partitions that looksLeft no longer counts
	wantedBy    []*partition // partitions that wanted it while it was in another's step
	searchUntil time.Time    // until when the search continues after the wait, if it is unknown whether something is due
	exhausted   []*partition // partitions that looked up to the head and had nothing for it

	// Only the step uses these.
	limit       int
	deliveredAt int64 // identifies the answer among all answers of a ledger
	bytes       int
	headRead    bool         // the head was looked up for it
	mayHaveMore bool         // the last step may have left something
	verified    []*partition // partitions whose newest ledgers had nothing for it
	deliveries  []domain.Delivery
}

// receiveState says where a receive is. It has these transitions:
//
//	state            | claim         | finish                      | stopWaiting | abandon          | fail
//	receiveWaiting   | receiveInStep |                             | receiveOver | receiveOver      | receiveOver
//	receiveInStep    |               | receiveOver, receiveWaiting |             | receiveAbandoned |
//	receiveAbandoned |               | receiveOver                 |             |                  |
//	receiveOver      |               |                             |             |                  |
//
// A receive is in one step at a time. If finish has neither events nor an error for it, the receive may keep waiting,
// and other partitions that wanted it meanwhile look again.
type receiveState uint8

const (
	receiveWaiting   receiveState = iota // in the queues of its partitions
	receiveInStep                        // a partition's step may answer it
	receiveAbandoned                     // in a step, but its caller has gone: deliveries are given back
	receiveOver                          // answered, or its caller has gone
)

// claim takes the receive into a partition's step, if possible.
func (r *receive) claim(p *partition) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.state == receiveOver, r.looksLeft > 0 && slices.Contains(r.lookedAt, p):
		return false
	case r.state != receiveWaiting:
		r.wantedBy = append(r.wantedBy, p)
		return false
	}
	r.state = receiveInStep
	return true
}

// end ends the receive. The caller holds the lock.
func (r *receive) end() {
	r.state = receiveOver
	close(r.done)
}

func (r *receive) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state == receiveOver
}

// reset prepares the receive for a try of a step.
func (r *receive) reset(batch int, deliveredAt int64) {
	r.limit = r.batch
	if r.limit == 0 {
		r.limit = batch
	}
	r.bytes, r.deliveries, r.deliveredAt = 0, nil, deliveredAt
}

// interruptedPolicy says how a receive takes events whose last delivery was interrupted.
type interruptedPolicy uint8

const (
	interruptedSingly   interruptedPolicy = iota // one, as the only event
	interruptedTogether                          // like all other events
	interruptedNever
)

// interruptedWanted returns how many interrupted events may be added to the receive.
func (r *receive) interruptedWanted() int {
	switch {
	case r.interrupted == interruptedTogether:
		return r.limit - len(r.deliveries)
	case r.interrupted == interruptedSingly && len(r.deliveries) == 0:
		return 1
	}
	return 0
}

// finish ends a partition's step. With an error or events, the receive is answered; otherwise it may keep waiting.
// finish returns the deliveries to give back.
func (r *receive) finish(p *partition, err error) (back []domain.Attempt) {
	r.mu.Lock()
	abandoned := r.state == receiveAbandoned
	r.state = receiveWaiting
	if err == nil && !r.mayHaveMore && !slices.Contains(r.exhausted, p) {
		r.exhausted = append(r.exhausted, p)
	}
	if looksOn := err == nil && r.mayHaveMore && time.Now().Before(r.searchUntil); r.looksLeft > 0 && !looksOn {
		r.looksLeft--
		r.lookedAt = append(r.lookedAt, p)
	}
	wantedBy := r.wantedBy
	switch {
	case abandoned:
		if err == nil {
			back = domain.AttemptsOf(r.deliveries)
		}
		r.end()
	case err != nil:
		r.err = err
		r.end()
	case len(r.deliveries) > 0 || r.looksLeft == 0:
		r.ready, r.giver = r.deliveries, p
		r.end()
	}
	if r.state == receiveOver {
		wantedBy = nil
	}
	r.wantedBy, r.deliveries = nil, nil
	r.mu.Unlock()
	for _, other := range wantedBy {
		other.wakeReceives(false)
	}
	return back
}

// stopWaiting ends the wait for events. It returns true if the receive is over. It returns false if the receive keeps
// searching, or is in a step that will answer it.
func (r *receive) stopWaiting() (over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.state == receiveOver:
		return true
	case len(r.exhausted) < len(r.partitions) && time.Now().Before(r.searchUntil):
		r.looksLeft, r.lookedAt = len(r.partitions)-len(r.exhausted), slices.Clone(r.exhausted)
		return false
	case r.state == receiveInStep:
		r.looksLeft = 1
		return false
	}
	r.end()
	return true
}

// abandon ends a receive whose caller no longer waits.
func (r *receive) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.state {
	case receiveWaiting:
		r.end()
	case receiveInStep:
		r.state = receiveAbandoned
	}
}

// fail answers a waiting receive with an error.
func (r *receive) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == receiveWaiting {
		r.err = err
		r.end()
	}
}

// await adds a receive to the queues of its partitions and waits for the answer.
func (r *receive) await(ctx context.Context, wait time.Duration) ([]domain.Delivery, error) {
	for _, p := range r.partitions {
		p.mu.Lock()
		if p.dropped() {
			p.mu.Unlock()
			r.leave()
			return nil, errDropped
		}
		if r.ack != nil {
			if err := p.queueAnswer(r.ack); err != nil {
				p.mu.Unlock()
				return nil, err
			}
		}
		p.receives = append(p.receives, r)
		p.mayDeliver = true
		p.start()
		p.mu.Unlock()
	}
	var late <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-r.done:
	case <-ctx.Done():
	case <-late:
		if !r.stopWaiting() {
			for _, p := range r.partitions {
				p.wakeReceives(false)
			}
		}
		select {
		case <-r.done:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		r.leave()
		return nil, context.Cause(ctx)
	}
	r.withdraw()
	return r.ready, r.err
}

// leave abandons a receive whose caller no longer waits. Its deliveries, including those that a step is about to
// make, go back.
func (r *receive) leave() {
	r.abandon()
	r.withdraw()
	r.mu.Lock()
	back, from := domain.AttemptsOf(r.ready), r.giver
	r.ready = nil
	r.mu.Unlock()
	if len(back) > 0 {
		from.giveBack(back)
	}
}

// withdraw removes a receive that is over from the queues.
func (r *receive) withdraw() {
	for _, p := range r.partitions {
		p.mu.Lock()
		for i, waiting := range p.receives {
			if waiting == r && r.ended() {
				p.receives = slices.Delete(p.receives, i, i+1)
				break
			}
		}
		p.mu.Unlock()
	}
}

// giveBack gives back events that have reached nobody.
func (p *partition) giveBack(back []domain.Attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.dropped() {
		p.answers = append(p.answers, newGiveBack(back))
		p.start()
	}
}

// searching reports whether a receive without events was answered before every partition had looked up to the head.
func (r *receive) searching() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.exhausted) < len(r.partitions)
}

// fits reports whether an event of this size may be added.
func (r *receive) fits(bytes int) bool {
	if r.topUpBytes > 0 {
		return r.bytes+bytes <= r.topUpBytes
	}
	return len(r.deliveries) == 0 || r.bytes+bytes <= maxReceiveBytes
}
