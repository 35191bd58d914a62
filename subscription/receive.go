package subscription

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// maxReceiveBytes bounds what one receive is given, but for one event that it is given in any case.
const maxReceiveBytes = 8 << 20

// errForgotten means that a partition was forgotten: another one has to be opened.
var errForgotten = errors.New("the partition was forgotten")

// receive is a consumer's request for events. It may wait at several partitions, and is served by the first that has some.
type receive struct {
	batch  int                  // 0: the group's
	member domain.GroupMemberID // zero: the group has no partitions
	upTo   int64                // nothing new behind this position; 0: there is no such bound
	lease  time.Duration        // 0: the group's AckTimeout
	rest   int                  // bytes; not 0: it fills up what another receive was given, with no more than these
	done   chan struct{}        // closed when it is answered
	ready  []domain.Delivery
	err    error

	mu     sync.Mutex
	at     []*partition // where it waits
	holder *partition   // whose step it is in; nil: none
	giver  *partition   // who has answered it with events
	over   bool         // answered, or given up
	tries  int          // when so many more partitions have had nothing it is answered; negative: it waits on
	seen   []*partition // of those that count in tries
	left   bool         // nobody waits for it: what it is given goes back
	missed []*partition // that looked for it while it was in another's step
	search time.Time    // until when it looks on where it is not known yet that nothing is due, though its wait is over
	known  []*partition // that have looked up to the head, and had nothing for it

	// The step's.
	limit      int
	bytes      int
	looked     bool         // the head was looked up for it
	more       bool         // the step that was the last one may have left something
	verified   []*partition // whose newest ledgers had nothing for it
	deliveries []domain.Delivery
}

// claim takes the receive into a partition's step.
func (r *receive) claim(p *partition) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over, r.tries > 0 && slices.Contains(r.seen, p):
		return false
	case r.holder != nil:
		r.missed = append(r.missed, p)
		return false
	}
	r.holder = p
	return true
}

func (r *receive) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// begin begins an attempt of a step.
func (r *receive) begin(batch int) {
	r.limit = r.batch
	if r.limit == 0 {
		r.limit = batch
	}
	r.bytes, r.deliveries = 0, nil
}

// finish ends a step: with an error or events the receive is answered, else it may wait on. What is returned reaches nobody.
func (r *receive) finish(err error) (back []domain.Attempt) {
	r.mu.Lock()
	holder := r.holder
	r.holder = nil
	if err == nil && !r.more && !slices.Contains(r.known, holder) {
		r.known = append(r.known, holder)
	}
	if looksOn := err == nil && r.more && time.Now().Before(r.search); r.tries > 0 && !looksOn {
		r.tries--
		r.seen = append(r.seen, holder)
	}
	switch {
	case r.left:
		r.over = true
		for i := range r.deliveries {
			if err == nil {
				back = append(back, domain.Attempt{EventID: r.deliveries[i].Event.ID, Attempt: r.deliveries[i].Attempt})
			}
		}
	case err != nil:
		r.err, r.over = err, true
	case len(r.deliveries) > 0 || r.tries == 0:
		r.ready, r.over, r.giver = r.deliveries, true, holder
	}
	missed := r.missed
	r.missed, r.deliveries = nil, nil
	if r.over {
		close(r.done)
		missed = nil
	}
	r.mu.Unlock()
	for _, other := range missed {
		other.awaken(false)
	}
	return back
}

// giveUp ends the wait: with leave nobody wants the events any more that it may be given. It reports true where the
// receive is over, and false where it is in a step, which will answer it, or looks on.
func (r *receive) giveUp(leave bool) (over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over:
		return true
	case !leave && len(r.known) < len(r.at) && time.Now().Before(r.search):
		r.tries, r.seen = len(r.at)-len(r.known), slices.Clone(r.known)
		return false
	case r.holder != nil:
		r.left, r.tries = r.left || leave, 1
		return false
	}
	r.over = true
	close(r.done)
	return true
}

// fail answers a receive that waits with an error.
func (r *receive) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over && r.holder == nil {
		r.err, r.over = err, true
		close(r.done)
	}
}

// await puts a receive into the queues of its partitions and waits for what it is given.
func (r *receive) await(ctx context.Context, wait time.Duration) ([]domain.Delivery, error) {
	for _, p := range r.at {
		p.mu.Lock()
		if p.gone {
			p.mu.Unlock()
			r.leave()
			return nil, errForgotten
		}
		p.receives = append(p.receives, r)
		p.news = true
		p.kick()
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
		if !r.giveUp(false) {
			for _, p := range r.at {
				p.awaken(false)
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

// leave gives a receive up for which nobody waits any more. What it was given already, or is being given, goes back.
func (r *receive) leave() {
	r.giveUp(true)
	r.withdraw()
	r.mu.Lock()
	var back []domain.Attempt
	for i := range r.ready {
		back = append(back, domain.Attempt{EventID: r.ready[i].Event.ID, Attempt: r.ready[i].Attempt})
	}
	var from *partition
	if len(r.ready) > 0 {
		from = r.giver
	}
	r.ready = nil
	r.mu.Unlock()
	if from != nil {
		from.takeBack(back)
	}
}

// withdraw takes a receive that is over out of the queues.
func (r *receive) withdraw() {
	for _, p := range r.at {
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

// takeBack gives events back that have reached nobody.
func (p *partition) takeBack(back []domain.Attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		p.answers = append(p.answers, newGiveBack(back))
		p.kick()
	}
}

// searching reports whether a receive that has nothing was answered before each partition had looked up to the head.
func (r *receive) searching() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.known) < len(r.at)
}

// fits reports whether an event of a size may be given in addition.
func (r *receive) fits(bytes int) bool {
	if r.rest > 0 {
		return r.bytes+bytes <= r.rest
	}
	return len(r.deliveries) == 0 || r.bytes+bytes <= maxReceiveBytes
}
