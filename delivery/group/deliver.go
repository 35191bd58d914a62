package group

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// receiveWithRoom returns the first receive of a step that has room for an event of this size, or nil.
func (s *step) receiveWithRoom(bytes int) *receive {
	for ; s.nextServed < len(s.served); s.nextServed++ {
		r := s.served[s.nextServed]
		if len(r.deliveries) < r.limit && r.fits(bytes) {
			return r
		}
	}
	return nil
}

// eventsWanted returns how many more events the receives of a step want.
func (s *step) eventsWanted() int {
	wanted := 0
	for _, r := range s.served[s.nextServed:] {
		wanted += r.limit - len(r.deliveries)
	}
	return wanted
}

// receiveForInterrupted returns the first receive of a step that an interrupted event of this size may be added to, or
// nil.
func (s *step) receiveForInterrupted(bytes int) *receive {
	for _, r := range s.served[s.nextServed:] {
		if r.interruptedWanted() > 0 && r.fits(bytes) {
			return r
		}
	}
	return nil
}

func (s *step) addDelivery(r *receive, le *lease, e *domain.Event) {
	if r.deliveries == nil {
		space, _ := s.p.roomForLeases() // after this one
		r.deliveries = make([]domain.Delivery, 0, 1+max(0, min(r.limit-1, space, s.p.ahead.waiting())))
	}
	r.deliveries = append(r.deliveries, domain.Delivery{
		Event: *e, Attempt: le.attempt, Base: le.base, Partition: s.p.number, Replays: le.replays,
	})
	r.bytes += eventBytes(e)
	s.counts.delivered++
}

// roomForLeases returns how many more events may be leased. fresh reports whether they may include events that were not
// delivered before.
func (p *partition) roomForLeases() (space int, fresh bool) {
	l, most := p.ledger, p.row.Group.MaxInFlight
	return most - l.inFlight(), len(l.retries) < 2*most
}

// deliver leases events to the receives in order of arrival. It starts with redeliveries that are due, continues with
// events left behind in streams that are free, and ends with new events.
func (s *step) deliver(ctx context.Context, now, begin int64) error {
	s.nextServed = 0
	deadline := s.deadline(begin)
	if err := s.redeliver(ctx, now, deadline); err != nil {
		return err
	}
	if err := s.deliverLeftBehind(ctx, deadline); err != nil {
		return err
	}
	return s.deliverNew(ctx, now, deadline)
}

// redeliveryRead limits how many events due for redelivery are read at once. Large events reduce it.
const redeliveryRead = 250

func (s *step) redeliver(ctx context.Context, now, deadline int64) error {
	l := s.p.ledger
	wanted := 0
	for _, r := range s.served {
		wanted += r.interruptedWanted()
	}
	if err := s.redeliverEach(ctx, l.dueInterrupted(wanted), deadline); err != nil {
		return err
	}
	space, fresh := s.p.roomForLeases()
	return s.redeliverEach(ctx, l.dueRedeliveries(now, s.eventsWanted(), space, fresh), deadline)
}

func (s *step) redeliverEach(ctx context.Context, due []redelivery, deadline int64) error {
	l := s.p.ledger
	for average := s.p.ahead.typicalBytes(); len(due) > 0; {
		chunk := max(1, min(redeliveryRead, maxReceiveBytes/average))
		part := due[:min(chunk, len(due))]
		due = due[len(part):]
		positions := make([]int64, len(part))
		for i, a := range part {
			positions[i] = a.position()
		}
		events, err := s.p.groups.config.Events.ReadPositions(ctx, s.p.group.tenant, positions)
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
			if e == nil || a.replay == nil && !s.p.ahead.selection.Names(e) {
				l.settleGone(a) // no longer in the log, or, after a change of the definition, not in the group
				continue
			}
			interrupted := a.lease != nil && a.lease.interrupted()
			receive := s.receiveWithRoom
			if interrupted {
				receive = s.receiveForInterrupted
			}
			r := receive(eventBytes(e))
			if r == nil {
				return nil
			}
			s.addDelivery(r, l.redeliver(a, e, r.deliveredAt, deadline), e)
			if interrupted {
				s.counts.expired++
				if r.interrupted == interruptedSingly {
					r.deliveries[0].Alone, r.limit = true, 1
				}
			}
		}
	}
	return nil
}

// Bounds for reading streams that are behind.
const (
	streamsRead      = 250     // streams
	streamRead       = 1000    // events of one stream, some of which may not belong to the group
	streamsRounds    = 20      // reads per step
	streamsReadBytes = 8 << 20 // expected, from the size of the events read last
)

func (s *step) deliverLeftBehind(ctx context.Context, deadline int64) error {
	p, l := s.p, s.p.ledger
	each := streamAheadEvents
	for rounds := 0; ; rounds++ {
		if rounds > streamsRounds || rounds > 0 && time.Since(s.began) > stepTime {
			s.mayHaveMore = true
			return nil // save the progress before reading more
		}
		space, fresh := s.p.roomForLeases()
		free := l.freeStreams(min(s.eventsWanted(), space, streamsRead))
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
					p.streams.remove(b.stream)
				}
				continue // or there is more, but none of it belongs to the group so far
			}
			r := s.receiveWithRoom(eventBytes(e))
			if r == nil {
				return nil
			}
			s.addDelivery(r, l.leaseLeftBehind(b, e, r.deliveredAt, deadline), e)
			p.streams.advance(b.stream)
			if last {
				l.caughtUp(b)
				p.streams.remove(b.stream)
			}
		}
	}
}

// readStreams reads the next events of streams that are behind and have none in memory. It reads up to each events per
// stream.
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
	limit := max(1, min(each, streamsReadBytes/len(places)/p.ahead.typicalBytes()))
	l := p.ledger
	events, err := p.groups.config.Events.NextInStreams(ctx, p.group.tenant, places, l.readTo, limit)
	if err != nil {
		return err
	}
	read := make(map[string][]domain.Event, len(places))
	for i := range events {
		read[events[i].Stream] = append(read[events[i].Stream], events[i])
	}
	filter := p.ahead.newFilter()
	defer filter.end()
	for stream, b := range of {
		found := read[stream]
		all := len(found) < limit
		kept := found[:0:0]
		for i := range found {
			wanted, enough, err := filter.selects(ctx, &found[i])
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
			l.advanceBehind(b, found[n-1].Version, found[n-1].Position+1)
		}
		p.streams.addRead(stream, kept, all)
	}
	return nil
}

func (s *step) deliverNew(ctx context.Context, now, deadline int64) error {
	p, l := s.p, s.p.ledger
	p.delayedUntil = 0
	for {
		space, fresh := s.p.roomForLeases()
		if space <= 0 || !fresh || s.receiveWithRoom(0) == nil {
			return nil
		}
		e := p.ahead.next()
		if e == nil {
			l.advanceReadTo(min(p.ahead.scanned, s.frontier()))
			passed := l.readTo - l.savedReadTo
			// However slow the ledger was, look at the log once.
			if s.counts.delivered > 0 || passed >= maxPassed || passed > 0 && time.Since(s.began) > stepTime {
				s.mayHaveMore = s.mayHaveMore || p.ahead.reading != nil || p.ahead.scanned < s.frontier()
				return nil
			}
			if read, err := s.readAhead(ctx); err != nil || !read {
				return err
			}
			continue
		}
		r := s.receiveWithRoom(eventBytes(e))
		for r != nil && r.upTo > 0 && e.Position > r.upTo {
			s.nextServed++
			r = s.receiveWithRoom(eventBytes(e))
		}
		if r == nil || p.ends() < e.Position {
			return nil
		}
		if p.delayedUntil = p.endOfDelay(e, now); p.delayedUntil > 0 {
			return nil
		}
		_, known := l.behind[e.Stream]
		if le := l.leaseNext(e, r.deliveredAt, deadline); le != nil {
			s.addDelivery(r, le, e)
			r.deliveries[len(r.deliveries)-1].Gap = p.ahead.gapBefore(e)
		} else {
			p.streams.addLeftBehind(e, !known)
		}
		p.ahead.advance()
	}
}

// readAhead reads on in the log if there is more. It looks up the head once for each receive, because another process
// may know of an event that was not announced here.
func (s *step) readAhead(ctx context.Context) (bool, error) {
	p := s.p
	read, err := p.ahead.readMore(ctx, s.frontier())
	if read || err != nil || s.frontier() < p.group.head.Load() {
		return read, err
	}
	looked := true
	for _, r := range s.served {
		looked, r.headRead = looked && r.headRead, true
	}
	if looked {
		return false, nil
	}
	head, err := p.groups.config.Events.Head(ctx, p.group.tenant)
	if err != nil {
		return false, err
	}
	p.group.advanceHead(head.Position)
	return p.ahead.readMore(ctx, s.frontier())
}
