package group

import (
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// find returns the lease that an answer refers to, or the outcome of the answer if there is none.
func (l *ledger) find(a domain.Attempt) (*lease, domain.Outcome) {
	if le := l.leaseOf[a.EventID]; le != nil {
		switch {
		case le.attempt == a.Attempt:
			return le, domain.OutcomeDone
		case le.attempt > a.Attempt:
			return nil, domain.OutcomeStale
		}
		return nil, domain.OutcomeNotInFlight
	}
	if r := l.retryOf[a.EventID]; r != nil && r.Attempt >= a.Attempt {
		return nil, domain.OutcomeStale
	}
	if a.Attempt <= l.floor {
		return nil, domain.OutcomeStale // a seek has dropped it
	}
	for i := range l.replays {
		if d := &l.replays[i]; d.EventID == a.EventID && d.Attempt >= a.Attempt {
			return nil, domain.OutcomeStale
		}
	}
	return nil, domain.OutcomeNotInFlight
}

// end removes a lease.
func (l *ledger) end(le *lease) {
	delete(l.leaseOf, le.id)
	l.endedEvents = append(l.endedEvents, le.id)
	le.ended, l.untidy, l.dirty = true, true, true
}

// settle ends a lease for good.
func (l *ledger) settle(le *lease) {
	l.end(le)
	delete(l.origins, le.position)
	l.releaseStream(le.stream)
}

// retryAt schedules a redelivery of a leased event.
func (l *ledger) retryAt(le *lease, due int64, reason string) {
	l.end(le)
	r := &Retry{
		Partition: l.partition, Position: le.position, EventID: le.id, Stream: le.stream, Version: le.version,
		Attempt: le.attempt, Base: le.base, Replays: le.replays, DueAt: time.UnixMicro(due).UTC(), Reason: reason,
	}
	l.retries[r.Position], l.retryOf[r.EventID] = r, r
	delete(l.unretry, r.Position)
	l.retry[r.Position] = r
}

// parkLease moves a leased event to the dead letters.
func (l *ledger) parkLease(le *lease, now int64, reason string) {
	at := time.UnixMicro(now).UTC()
	first := at
	if origin, ok := l.origins[le.position]; ok {
		first = time.UnixMicro(origin).UTC()
	}
	l.settle(le)
	delete(l.unpark, le.position)
	l.park[le.position] = domain.DeadLetter{
		Partition: l.partition, Position: le.position, EventID: le.id, Stream: le.stream, Version: le.version, Type: le.eventType,
		Attempt: le.attempt, Base: le.base, Replays: le.replays, Reason: reason, FirstParkedAt: first, ParkedAt: at,
	}
}

// giveBack makes a leased event due at once. The attempt does not count, because it has reached nobody.
func (l *ledger) giveBack(le *lease) {
	if le.due() {
		return
	}
	le.deadline = 0
	le.discount()
	l.dirty = true
}

// discount makes a lease's attempt not count.
func (le *lease) discount() { le.base = min(le.base+1, le.attempt) }

// givenBack reports whether an event was given back or interrupted, and not delivered since.
func (l *ledger) givenBack() bool {
	return slices.ContainsFunc(l.leases, func(le *lease) bool { return !le.ended && le.due() })
}

// extend moves a lease's deadline.
func (l *ledger) extend(le *lease, deadline int64) {
	le.deadline = deadline
	l.dirty = true
}

// lastAttempt reports whether this is the last attempt for the event.
func (le *lease) lastAttempt(maxAttempts int) bool { return le.attempt-le.base >= maxAttempts }

// unanswered is the reason for parking an event that was not answered in time.
const unanswered = "there was no answer in time"

// expireLeases interrupts the events whose leases have expired, and returns the number of those that it parked.
func (l *ledger) expireLeases(now int64, maxAttempts int) (parked int) {
	var expired []*lease
	for _, le := range l.leases {
		if !le.ended && le.deadline <= now && !le.due() {
			expired = append(expired, le)
		}
	}
	if len(expired) == 0 {
		return 0
	}
	unsettled := l.unsettled()
	for _, le := range expired {
		if l.interrupt(le, unsettled[le.delivered] == 1, now, maxAttempts, unanswered) {
			parked++
		}
	}
	return parked
}

// unsettled counts the events of each answer that were neither settled nor given back since, by the time of the answer.
// Events that were interrupted before are included, since their leases may have had other deadlines.
func (l *ledger) unsettled() map[int64]int {
	counts := make(map[int64]int)
	for _, le := range l.leaseOf {
		if le.deadline != 0 {
			counts[le.delivered]++
		}
	}
	return counts
}

// interrupt ends the lease of an event whose consumer may have died. The event is due at once, and is then delivered by
// itself. The attempt counts only if the consumer had nothing else: otherwise another event may be the cause. interrupt
// reports whether the event was parked, because its attempts were used up.
func (l *ledger) interrupt(le *lease, alone bool, now int64, maxAttempts int, reason string) (parked bool) {
	switch {
	case !alone:
		le.discount()
	case le.lastAttempt(maxAttempts):
		l.parkLease(le, now, reason)
		return true
	}
	le.deadline = le.delivered
	l.dirty = true
	return false
}

// interrupted reports whether a lease was interrupted, and its event not delivered since.
func (le *lease) interrupted() bool { return le.deadline == le.delivered }

// due reports whether an event was given back or interrupted, and not delivered since.
func (le *lease) due() bool { return le.deadline == 0 || le.interrupted() }

// nextDue returns when the next lease expires or, with retries, the next retry is due. 0 means never.
func (l *ledger) nextDue(retries bool) int64 {
	var next int64
	at := func(t int64) {
		if next == 0 || t < next {
			next = t
		}
	}
	for _, le := range l.leaseOf {
		at(max(1, le.deadline))
	}
	if retries {
		for _, r := range l.retries {
			at(max(1, r.DueAt.UnixMicro()))
		}
	}
	return next
}
