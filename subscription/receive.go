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
	if r.tries > 0 {
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
// receive is over, and false where it is in a step, which will answer it.
func (r *receive) giveUp(leave bool) (over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return true
	}
	if r.holder != nil {
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
		r.giveUp(false)
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

// room finds the first receive of a step that an event of a size fits into; nil: there is none.
func (s *step) room(bytes int) *receive {
	for ; s.serving < len(s.served); s.serving++ {
		r := s.served[s.serving]
		if len(r.deliveries) < r.limit && r.fits(bytes) {
			return r
		}
	}
	return nil
}

// fits reports whether an event of a size may be given in addition.
func (r *receive) fits(bytes int) bool {
	if r.rest > 0 {
		return r.bytes+bytes <= r.rest
	}
	return len(r.deliveries) == 0 || r.bytes+bytes <= maxReceiveBytes
}

// wanted is how many events the receives of a step still want.
func (s *step) wanted() int {
	wanted := 0
	for _, r := range s.served[s.serving:] {
		wanted += r.limit - len(r.deliveries)
	}
	return wanted
}

func (s *step) give(r *receive, le *lease, e *domain.Event) {
	r.deliveries = append(r.deliveries, domain.Delivery{
		Event: *e, Attempt: le.attempt, Base: le.base, AckDeadline: time.UnixMicro(le.deadline).UTC(), Partition: s.p.number, Replays: le.replays,
	})
	r.bytes += eventBytes(e)
	s.told.delivered++
}

// space is how many events may be leased in addition; fresh reports whether those may be such that were not delivered yet.
func (s *step) space() (space int, fresh bool) {
	l, most := s.p.ledger, s.p.row.Group.MaxInFlight
	return most - l.inFlight(), len(l.retries) < 2*most
}

// deliver leases events to the receives, in the order of their coming: what is due again first, then what is left behind
// in streams that are free, then what is new.
func (s *step) deliver(ctx context.Context, now, latest int64) error {
	s.serving = 0
	deadline := latest + s.p.row.Group.AckTimeout.Microseconds()
	if err := s.deliverAgain(ctx, now, deadline); err != nil {
		return err
	}
	if err := s.deliverBehind(ctx, now, deadline); err != nil {
		return err
	}
	return s.deliverNew(ctx, now, deadline)
}

// againRead is how many events that are due again are read at once, at most; fewer, where events are large.
const againRead = 250

func (s *step) deliverAgain(ctx context.Context, now, deadline int64) error {
	l := s.p.ledger
	space, fresh := s.space()
	due := l.dueAgain(now, s.wanted(), space, fresh)
	for average := s.p.ahead.typical(); len(due) > 0; {
		chunk := max(1, min(againRead, maxReceiveBytes/average))
		part := due[:min(chunk, len(due))]
		due = due[len(part):]
		positions := make([]int64, len(part))
		for i, a := range part {
			positions[i] = a.position()
		}
		events, err := s.p.groups.config.Store.ReadPositions(ctx, s.p.group.tenant, positions)
		if err != nil {
			return err
		}
		there := make(map[int64]*domain.Event, len(events))
		bytes := 0
		for i := range events {
			there[events[i].Position] = &events[i]
			bytes += eventBytes(&events[i])
		}
		average = max(1, bytes/max(1, len(events)))
		for _, a := range part {
			e := there[a.position()]
			if e == nil || a.replay == nil && !s.p.ahead.selection.names(e) {
				l.settleGone(a) // it is no longer in the log, or, the definition having changed, no longer the group's
				continue
			}
			r := s.room(eventBytes(e))
			if r == nil {
				return nil
			}
			if a.lease != nil && a.lease.deadline > 0 {
				s.told.expired++
			}
			s.give(r, l.deliverAgain(a, e, now, deadline), e)
		}
	}
	return nil
}

// Bounds of what is read at once of streams that are behind.
const (
	streamsRead      = 250     // streams
	streamRead       = 1000    // events of one stream, of which some may not be the group's
	streamsRounds    = 20      // reads in one step
	streamsReadBytes = 8 << 20 // expected, by the size of the events read last
)

func (s *step) deliverBehind(ctx context.Context, now, deadline int64) error {
	p, l := s.p, s.p.ledger
	each := streamAheadEvents
	for rounds := 0; ; rounds++ {
		if rounds > streamsRounds || rounds > 0 && time.Since(s.began) > stepTime {
			s.more = true
			return nil // what was passed over is saved, before there is more
		}
		space, fresh := s.space()
		free := l.free(min(s.wanted(), space, streamsRead))
		if !fresh || len(free) == 0 {
			return nil
		}
		if err := p.readStreams(ctx, free, each); err != nil {
			return err
		}
		each = min(2*each, streamRead)
		for _, b := range free {
			e, last := p.streams.next(b.stream)
			if e == nil {
				if last {
					l.caughtUp(b)
					p.streams.forget(b.stream)
				}
				continue // or there is more, which is not the group's so far
			}
			r := s.room(eventBytes(e))
			if r == nil {
				return nil
			}
			s.give(r, l.nextBehind(b, e, now, deadline), e)
			p.streams.take(b.stream)
			if last {
				l.caughtUp(b)
				p.streams.forget(b.stream)
			}
		}
	}
}

// readStreams reads the next events of streams that are behind and have none in memory, up to each of a stream.
func (p *partition) readStreams(ctx context.Context, streams []*leftBehind, each int) error {
	var places []domain.StreamPlace
	of := make(map[string]*leftBehind)
	for _, b := range streams {
		if e, all := p.streams.next(b.stream); e == nil && !all {
			places = append(places, domain.StreamPlace{Stream: b.stream, Version: b.version})
			of[b.stream] = b
		}
	}
	if len(places) == 0 {
		return nil
	}
	limit := max(1, min(each, streamsReadBytes/len(places)/p.ahead.typical()))
	l := p.ledger
	events, err := p.groups.config.Store.NextInStreams(ctx, p.group.tenant, places, l.readTo, limit)
	if err != nil {
		return err
	}
	read := make(map[string][]domain.Event, len(places))
	for i := range events {
		read[events[i].Stream] = append(read[events[i].Stream], events[i])
	}
	asking := p.ahead.sieve()
	defer asking.end()
	for stream, b := range of {
		found := read[stream]
		all := len(found) < limit
		kept := found[:0:0]
		for i := range found {
			wanted, enough, err := asking.wants(ctx, &found[i])
			if err != nil {
				return err
			}
			if enough {
				found, all = found[:i], false
				break
			}
			if wanted {
				kept = append(kept, found[i])
			}
		}
		if n := len(found); n > 0 && len(kept) == 0 {
			l.passBehind(b, found[n-1].Version, found[n-1].Position+1)
		}
		p.streams.read(stream, kept, all)
	}
	return nil
}

func (s *step) deliverNew(ctx context.Context, now, deadline int64) error {
	p, l := s.p, s.p.ledger
	p.young = 0
	for {
		space, fresh := s.space()
		if space <= 0 || !fresh || s.room(0) == nil {
			return nil
		}
		e := p.ahead.next()
		if e == nil {
			l.pass(min(p.ahead.scanned, s.frontier()))
			if s.told.delivered > 0 || l.readTo-l.kept >= maxPassed || time.Since(s.began) > stepTime {
				s.more = p.ahead.under != nil || p.ahead.scanned < s.frontier()
				return nil
			}
			if read, err := s.readAhead(ctx); err != nil || !read {
				return err
			}
			continue
		}
		r := s.room(eventBytes(e))
		for r != nil && r.upTo > 0 && e.Position > r.upTo {
			s.serving++
			r = s.room(eventBytes(e))
		}
		if r == nil || p.ends() < e.Position {
			return nil
		}
		if p.young = p.tooYoung(e, now); p.young > 0 {
			return nil
		}
		_, known := l.behind[e.Stream]
		if le := l.next(e, now, deadline); le != nil {
			s.give(r, le, e)
			r.deliveries[len(r.deliveries)-1].Gap = p.ahead.meets(e)
		} else {
			p.streams.left(e, !known)
		}
		p.ahead.take()
	}
}

// readAhead reads on in the log, where that has more. The head is looked up once for each receive: somebody may have been told
// elsewhere of an event that nobody has told here.
func (s *step) readAhead(ctx context.Context) (bool, error) {
	p := s.p
	read, err := p.ahead.more(ctx, s.frontier())
	if read || err != nil || s.frontier() < p.group.head.Load() {
		return read, err
	}
	looked := true
	for _, r := range s.served {
		looked, r.looked = looked && r.looked, true
	}
	if looked {
		return false, nil
	}
	head, err := p.groups.config.Store.Head(ctx, p.group.tenant)
	if err != nil {
		return false, err
	}
	p.group.moved(head.Position)
	return p.ahead.more(ctx, s.frontier())
}
