package group

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// A lease begins when its response leaves, and must be durable before that. So it is granted with slack for the time
// that recent saves took. If a save takes longer all the same, the lease is extended and saved again before the event
// is delivered.

const (
	// maxSlack limits how much longer than AckTimeout a dead consumer's event may stay leased after slow saves.
	maxSlack = 15 * time.Second
	// renewTries limits how often a step extends its leases before it delivers.
	renewTries = 3
	// renewConflicts limits how many conflicting changes of the ledger one extension tolerates.
	renewConflicts = 10
)

var errNotTimely = domain.Errorf(domain.CodeUnavailable, "",
	"the database takes so long that the leases would be over before the answer arrives; try again")

// beginLeases sets the time when leases begin, and returns it with slack included.
func (s *step) beginLeases() (begin int64) {
	s.leasesBegunAt, s.slack, s.ackTimeout = s.p.clock.latest(), s.p.slack, s.p.row.Group.AckTimeout
	for _, r := range s.receives {
		if r.lease > 0 {
			s.ackTimeout = min(s.ackTimeout, r.lease)
		}
	}
	return s.leasesBegunAt.Add(s.slack).UnixMicro()
}

// deadline returns when leases that begin at begin end.
func (s *step) deadline(begin int64) int64 { return begin + s.ackTimeout.Microseconds() }

// shortened reports whether more than a quarter of a lease of this length has passed since it was granted.
func (s *step) shortened(length time.Duration) bool {
	return s.p.clock.latest().Sub(s.leasesBegunAt)-s.slack > length/4
}

// overdue reports whether a lease saved in this step has lost too much of its time.
func (s *step) overdue() bool {
	if s.counts.delivered > 0 && s.shortened(s.ackTimeout) {
		return true
	}
	return slices.ContainsFunc(s.answers, func(a *answer) bool {
		return a.extend && a.effect > 0 && s.shortened(cmp.Or(a.by, s.ackTimeout))
	})
}

// renewLeases extends the leases that were saved too slowly. It drops events that were delivered to others meanwhile.
// After an error, none of the leases may be relied on: see recall.
func (s *step) renewLeases(ctx context.Context) error {
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
		now, begin := p.clock.now().UnixMicro(), s.beginLeases()
		deadline := s.deadline(begin)
		for _, r := range s.receives {
			held := len(r.deliveries)
			r.deliveries = slices.DeleteFunc(r.deliveries, func(d domain.Delivery) bool {
				le := p.ledger.leaseOf[d.Event.ID]
				if le == nil || le.attempt != d.Attempt || p.ledger.lapsed(le) {
					return true
				}
				p.ledger.extend(le, deadline)
				return false
			})
			s.mayHaveMore = s.mayHaveMore || len(r.deliveries) < held
			s.counts.delivered -= held - len(r.deliveries)
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
		if err := p.readLedger(ctx, true); err != nil {
			return err
		}
		s.ledgerRead = true
	}
	return errNotTimely
}

// recallLeases fails every request whose leases could not be renewed in time. Leases granted to receives are given
// back, and their attempts do not count. An extension may have been saved, but its lease may have expired. Repeating
// the request is harmless.
func (s *step) recallLeases(err error) {
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
		s.counts.delivered -= len(r.deliveries)
		s.undelivered = append(s.undelivered, domain.AttemptsOf(r.deliveries)...)
		r.deliveries = nil
		r.finish(s.p, err)
	}
	s.receives = slices.DeleteFunc(s.receives, (*receive).ended)
	s.dueUnknown = cmp.Or(s.dueUnknown, err)
}

// stampDeliveries sets the end of the lease in each delivery, the group's maximum of attempts, and the cursor.
func (s *step) stampDeliveries() {
	if s.counts.delivered == 0 {
		return
	}
	cursor := s.p.ledger.checkpoint()
	deadline := time.UnixMicro(s.deadline(s.leasesBegunAt.Add(s.slack).UnixMicro())).UTC()
	expires := time.Now().Add(deadline.Sub(s.p.clock.latest()))
	for _, r := range s.receives {
		for i := range r.deliveries {
			d := &r.deliveries[i]
			d.AckDeadline, d.Expires, d.MaxAttempts, d.Cursor = deadline, expires, s.p.row.Group.MaxAttempts, cursor
		}
	}
}

// keepTimely gives back deliveries with less than half of their lease left, because this process was slow. It fails if
// none remain.
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
	r.giveBack(back)
	if len(kept) == 0 {
		return nil, errNotTimely
	}
	return kept, nil
}

// withoutStale removes deliveries that a later delivery of the same response made stale: those of the same event or, in
// an ordered group, of the same stream. They exist only if the database's clock was moved.
func withoutStale(given []domain.Delivery, ordered bool) []domain.Delivery {
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
