package group

import (
	"cmp"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// addLease leases an event.
func (l *ledger) addLease(e *domain.Event, attempt, base, replays int, now, deadline int64) *lease {
	le := &lease{
		leasedEvent: leasedEventOf(e),
		leaseTerms:  leaseTerms{attempt: attempt, base: base, replays: replays, delivered: now, deadline: deadline},
	}
	if n := len(l.leases); n > 0 && l.leases[n-1].position > le.position {
		l.untidy = true
	}
	l.leases = append(l.leases, le)
	l.leaseOf[le.id] = le
	l.holdStream(le.stream)
	l.highest = max(l.highest, attempt)
	l.dirty = true
	return le
}

// advanceReadTo moves readTo to a position, up to which nothing more is to be delivered.
func (l *ledger) advanceReadTo(position int64) { l.readTo = max(l.readTo, position) }

// leaseNext takes the group's next event of the log, which must come after readTo, and leases it. It returns nil if the
// event's stream is held or already behind. Such a stream is then behind with this event.
func (l *ledger) leaseNext(e *domain.Event, now, deadline int64) *lease {
	l.advanceReadTo(e.Position)
	if l.ordered {
		if l.behind[e.Stream] != nil {
			return nil
		}
		if l.isHeld(e.Stream) {
			l.behind[e.Stream] = &leftBehind{stream: e.Stream, version: e.Version - 1, position: e.Position}
			return nil
		}
	}
	return l.addLease(e, l.floor+1, l.floor, 0, now, deadline)
}

// freeStreams returns streams that are behind and not held, no more than most. Those free for longest come first.
func (l *ledger) freeStreams(most int) []*leftBehind {
	var streams []*leftBehind
	seen := make(map[string]struct{}, min(most, len(l.freedStreams)))
	kept := l.freedStreams[:0]
	for _, stream := range l.freedStreams {
		b := l.behind[stream]
		if _, twice := seen[stream]; twice || b == nil || l.isHeld(stream) {
			continue
		}
		kept = append(kept, stream)
		seen[stream] = struct{}{}
		if len(streams) < most {
			streams = append(streams, b)
		}
	}
	clear(l.freedStreams[len(kept):])
	l.freedStreams = kept
	return streams
}

// leaseLeftBehind leases the next event of a stream that is behind and free.
func (l *ledger) leaseLeftBehind(b *leftBehind, e *domain.Event, now, deadline int64) *lease {
	l.advanceBehind(b, e.Version, e.Position+1)
	return l.addLease(e, l.floor+1, l.floor, 0, now, deadline)
}

// advanceBehind records that a stream has nothing more to deliver up to a version, and below a position.
func (l *ledger) advanceBehind(b *leftBehind, version, position int64) {
	b.version, b.position = version, max(b.position, position)
	l.dirty = true
}

// caughtUp records that a stream is no longer behind.
func (l *ledger) caughtUp(b *leftBehind) {
	delete(l.behind, b.stream)
	l.dirty = true
}

// redelivery is an event that may be redelivered. One of its fields is set.
type redelivery struct {
	lease  *lease // interrupted or given back
	retry  *Retry
	replay *domain.DeadLetter
}

func (a redelivery) position() int64 {
	switch {
	case a.lease != nil:
		return a.lease.position
	case a.retry != nil:
		return a.retry.Position
	default:
		return a.replay.Position
	}
}

// dueInterrupted returns interrupted events, no more than most. Those that have waited longest come first. Otherwise
// events of slow consumers, redelivered repeatedly, would delay others.
func (l *ledger) dueInterrupted(most int) []redelivery {
	if most <= 0 {
		return nil
	}
	l.tidy()
	var due []redelivery
	for _, le := range l.leases {
		if le.interrupted() {
			due = append(due, redelivery{lease: le})
		}
	}
	slices.SortStableFunc(due, func(a, b redelivery) int { return cmp.Compare(a.lease.delivered, b.lease.delivered) })
	return due[:min(most, len(due))]
}

// dueRedeliveries returns other events that may be redelivered now, no more than most. Those that were given back come
// first and take no room. Retries that are due follow, as far as there is room, and then, if fresh is set, replays.
func (l *ledger) dueRedeliveries(now int64, most, room int, fresh bool) []redelivery {
	l.tidy()
	var due []redelivery
	for _, le := range l.leases {
		if le.deadline == 0 && len(due) < most {
			due = append(due, redelivery{lease: le})
		}
	}
	room = min(room, most-len(due))
	if room <= 0 {
		return due
	}
	var retries []*Retry
	at := time.UnixMicro(now)
	for _, r := range l.retries {
		if !r.DueAt.After(at) {
			retries = append(retries, r)
		}
	}
	slices.SortFunc(retries, func(a, b *Retry) int {
		return cmp.Or(a.DueAt.Compare(b.DueAt), cmp.Compare(a.Position, b.Position))
	})
	for _, r := range retries[:min(room, len(retries))] {
		due = append(due, redelivery{retry: r})
		room--
	}
	if !fresh || room <= 0 {
		return due
	}
	taken := make(map[string]struct{}) // ordered: streams that already have a replay in due
	kept := make([]domain.DeadLetter, 0, len(l.replays))
	for _, d := range l.replays {
		if l.isDeliveredAnyway(&d) {
			l.dropDeadLetter(d.Position) // delivered without a replay
			continue
		}
		kept = append(kept, d)
	}
	l.otherReplays = l.otherReplays || l.replaysCut && len(kept) < len(l.replays)
	l.replays = kept
	for i := range l.replays {
		d := &l.replays[i]
		if room == 0 {
			break
		}
		if l.ordered {
			if _, twice := taken[d.Stream]; twice || l.isHeld(d.Stream) {
				continue
			}
			taken[d.Stream] = struct{}{}
		}
		due = append(due, redelivery{replay: d})
		room--
	}
	return due
}

// redeliver leases an event that dueInterrupted or dueRedeliveries returned.
func (l *ledger) redeliver(a redelivery, e *domain.Event, now, deadline int64) *lease {
	switch {
	case a.lease != nil:
		a.lease.attempt++
		a.lease.delivered, a.lease.deadline = now, deadline
		l.highest = max(l.highest, a.lease.attempt)
		l.dirty = true
		return a.lease
	case a.retry != nil:
		l.dropRetry(a.retry)
		return l.addLease(e, a.retry.Attempt+1, a.retry.Base, a.retry.Replays, now, deadline)
	default:
		d := *a.replay
		l.dropReplay(&d)
		// An event parked before a seek may have been redelivered since, with attempts up to the highest.
		base := d.Attempt
		if base <= l.floor {
			base = l.highest
		}
		l.origins[d.Position] = d.FirstParkedAt.UnixMicro()
		return l.addLease(e, base+1, base, d.Replays+1, now, deadline)
	}
}

// settleGone settles an event that dueInterrupted or dueRedeliveries returned and that is no longer in the log.
func (l *ledger) settleGone(a redelivery) {
	switch {
	case a.lease != nil:
		l.settle(a.lease)
	case a.retry != nil:
		delete(l.origins, a.retry.Position)
		l.dropRetry(a.retry)
		l.releaseStream(a.retry.Stream)
	default:
		l.dropReplay(a.replay)
	}
}

func (l *ledger) dropRetry(r *Retry) {
	delete(l.retries, r.Position)
	delete(l.retryOf, r.EventID)
	delete(l.retry, r.Position)
	l.unretry[r.Position] = struct{}{}
	l.dirty = true
}
