package subscription

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// A lease begins when its answer leaves, and must be durable before that. So it is granted with as much slack as saving took
// lately, and where saving took longer all the same, it is extended, and saved again, before it is given to anybody.

const (
	// maxSlack bounds how much longer than AckTimeout an event of a consumer that died may be leased, after saves were slow.
	maxSlack = 15 * time.Second
	// renewTries is how often a step extends what it is about to give.
	renewTries = 3
	// renewConflicts is how often one extension gives way to others who change the ledger.
	renewConflicts = 10
)

var errNotTimely = domain.Errorf(domain.CodeUnavailable, "",
	"the database takes so long that the leases would be over before the answer arrives; try again")

// grant has leases begin now. It returns when that is, slack included.
func (s *step) grant() (begin int64) {
	s.granted, s.slack, s.ackTimeout = s.p.clock.latest(), s.p.slack, s.p.row.Group.AckTimeout
	for _, r := range s.receives {
		if r.lease > 0 {
			s.ackTimeout = min(s.ackTimeout, r.lease)
		}
	}
	return s.granted.Add(s.slack).UnixMicro()
}

// deadline is when the leases end that begin then.
func (s *step) deadline(begin int64) int64 { return begin + s.ackTimeout.Microseconds() }

// shortened reports whether more than a quarter of a lease that was just granted has gone by.
func (s *step) shortened(length time.Duration) bool {
	return s.p.clock.latest().Sub(s.granted)-s.slack > length/4
}

// overdue reports whether a lease that was saved in this step has lost too much of its time.
func (s *step) overdue() bool {
	if s.told.delivered > 0 && s.shortened(s.ackTimeout) {
		return true
	}
	return slices.ContainsFunc(s.answers, func(a *answer) bool {
		return a.extend && a.effect > 0 && s.shortened(cmp.Or(a.by, s.ackTimeout))
	})
}

// renew extends the leases that were saved too slowly. What others were given meanwhile is left out. The error means that none of
// them may be relied on: see recall.
func (s *step) renew(ctx context.Context) error {
	for range renewTries {
		if !s.overdue() {
			return nil
		}
		if err := s.extendAll(ctx); err != nil {
			return err
		}
	}
	if s.overdue() {
		return errNotTimely
	}
	return nil
}

func (s *step) extendAll(ctx context.Context) error {
	p := s.p
	for range renewConflicts {
		now, begin := p.clock.now().UnixMicro(), s.grant()
		deadline := s.deadline(begin)
		for _, r := range s.receives {
			held := len(r.deliveries)
			r.deliveries = slices.DeleteFunc(r.deliveries, func(d domain.Delivery) bool {
				le := p.ledger.leaseOf[d.Event.ID]
				if le == nil || le.attempt != d.Attempt {
					return true
				}
				p.ledger.extend(le, deadline)
				return false
			})
			s.more = s.more || len(r.deliveries) < held
			s.told.delivered -= held - len(r.deliveries)
		}
		for _, a := range s.answers {
			if a.extend {
				a.apply(p.ledger, &p.row.Group, now, begin)
			}
		}
		if !p.ledger.dirty {
			return nil
		}
		if saved, err := s.save(ctx); saved || err != nil {
			return unavailableNow(err)
		}
		if err := p.load(ctx, true); err != nil {
			return err
		}
		s.fresh = true
	}
	return errNotTimely
}

// recall answers with an error wherever leases could not be renewed in time. Those granted to receives go back, and their attempts do not
// count. An extension may have been saved, but whether its lease still runs is not known: repeating it does no harm.
func (s *step) recall(err error) {
	s.answers = slices.DeleteFunc(s.answers, func(a *answer) bool {
		refused := a.extend && a.effect > 0
		if refused {
			a.finish(err)
		}
		return refused
	})
	for _, r := range s.receives {
		if len(r.deliveries) == 0 {
			continue
		}
		s.told.delivered -= len(r.deliveries)
		s.back = append(s.back, attemptsOf(r.deliveries)...)
		r.deliveries = nil
		r.finish(err)
	}
	s.receives = slices.DeleteFunc(s.receives, (*receive).ended)
	s.unlooked = cmp.Or(s.unlooked, err)
}

// stamp says of each delivery until when it is leased.
func (s *step) stamp() {
	deadline := time.UnixMicro(s.deadline(s.granted.Add(s.slack).UnixMicro())).UTC()
	expires := time.Now().Add(deadline.Sub(s.p.clock.latest()))
	for _, r := range s.receives {
		for i := range r.deliveries {
			r.deliveries[i].AckDeadline, r.deliveries[i].Expires = deadline, expires
		}
	}
}

func attemptsOf(deliveries []domain.Delivery) []domain.Attempt {
	attempts := make([]domain.Attempt, len(deliveries))
	for i := range deliveries {
		attempts[i] = domain.Attempt{EventID: deliveries[i].Event.ID, Attempt: deliveries[i].Attempt}
	}
	return attempts
}

// keepTimely gives back what has less than half of its time left, since this process was slow. It fails where nothing remains.
func (r *receive) keepTimely(given []domain.Delivery, timeout time.Duration) ([]domain.Delivery, error) {
	least := time.Now().Add(timeout / 2)
	late := func(d domain.Delivery) bool { return d.Expires.Before(least) }
	if !slices.ContainsFunc(given, late) {
		return given, nil
	}
	var kept, back []domain.Delivery
	for _, d := range given {
		if late(d) {
			back = append(back, d)
		} else {
			kept = append(kept, d)
		}
	}
	r.takeBack(back)
	if len(kept) == 0 {
		return nil, errNotTimely
	}
	return kept, nil
}

// newest leaves out deliveries that a later one of the same answer has made stale: those of the same event, and in an ordered group
// of the same stream. There are none, unless the database's clock was moved.
func newest(given []domain.Delivery, ordered bool) []domain.Delivery {
	type key struct {
		event  domain.EventID
		stream string
	}
	seen := make(map[key]struct{}, len(given))
	slices.Reverse(given)
	given = slices.DeleteFunc(given, func(d domain.Delivery) bool {
		k := key{event: d.Event.ID}
		if ordered {
			k = key{stream: d.Event.Stream}
		}
		_, twice := seen[k]
		seen[k] = struct{}{}
		return twice
	})
	slices.Reverse(given)
	return given
}
