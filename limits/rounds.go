package limits

import (
	gobytes "bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

const (
	// roundsApart is the shortest time between the beginnings of two rounds. Requests that come meanwhile share one.
	roundsApart = 5 * time.Millisecond
	// failedPause is the same after a round that has failed.
	failedPause = 100 * time.Millisecond
	// roundSize limits the ledgers of one round, which one transaction locks.
	roundSize = 200
	// roundTimeout limits one round.
	roundTimeout = 2 * time.Second
	// renewEvery is how often it is checked which leases of slots in use must be renewed.
	renewEvery = time.Second
	// burstShare is the part of a burst that a process leases ahead at most.
	burstShare = 4
	// forgetEvery is how often unused ledgers are deleted from the database.
	forgetEvery = time.Hour
	// forgetTimeout limits one such deletion.
	forgetTimeout = time.Minute
	// warnEvery is the shortest time between two messages about rounds that have failed.
	warnEvery = time.Second
)

// Run leases what the requests need, until ctx ends, and then returns nil.
func (l *Limiter) Run(ctx context.Context) error {
	report, renew, forget := time.NewTicker(pauseDry), time.NewTicker(renewEvery), time.NewTicker(forgetEvery)
	defer report.Stop()
	defer renew.Stop()
	defer forget.Stop()
	var background sync.WaitGroup
	defer background.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-forget.C:
			background.Go(func() { l.forget(ctx) })
			continue
		case <-renew.C:
			l.renew()
			continue
		case <-report.C:
			l.report()
			continue
		case <-l.wake:
		}
		began := time.Now()
		for node, shares := range l.begin() {
			background.Go(func() {
				l.runRound(ctx, shares)
				l.mu.Lock()
				delete(l.busy, node)
				l.mu.Unlock()
				l.wakeUp()
			})
		}
		pauseUntil(ctx, began.Add(roundsApart))
	}
}

// forget deletes unused ledgers. On a cluster that needs all nodes, so it must not delay rounds.
func (l *Limiter) forget(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	if err := l.config.Store.forgetLedgers(ctx); err != nil && !errors.Is(err, context.Canceled) {
		l.config.Log.Warn("unused limits could not be deleted; it is tried again in an hour", "error", err)
	}
}

func pauseUntil(ctx context.Context, end time.Time) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(end)):
	}
}

// report asks for shares that have used or hold something since their last round, so that what was used is refilled and
// what is of no more use returns to others.
func (l *Limiter) report() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, pace := time.Now(), l.pace()
	for s := range l.unreported {
		switch {
		case !s.mustReport(now):
			delete(l.unreported, s)
		case now.Sub(s.asked) >= pace:
			delete(l.unreported, s)
			l.ask(s)
		}
	}
}

// renew asks for shares with slots in use whose leases are half over, and forgets those that nothing uses.
func (l *Limiter) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.active = 0
	for name, s := range l.ledgers {
		l.refresh(s)
		used := s.slots[connections].used + s.slots[inFlight].used
		idle := now.Sub(s.usedAt) > lease
		if !idle && s.limits != (domain.Limits{}) {
			l.active++
		}
		switch hasSlots := s.limits.Connections != nil || s.limits.InFlight != nil; {
		case hasSlots && used > 0 && s.until.Sub(now) < lease/2:
			l.ask(s)
		case used == 0 && idle && s.next == nil && !l.isBusy(s.tenant):
			delete(l.ledgers, name)
			delete(l.dirty, s)
			delete(l.unreported, s)
		}
	}
}

// isBusy reports whether a tenant's node has a round under way. The lock is held.
func (l *Limiter) isBusy(tenant domain.TenantID) bool {
	_, busy := l.busy[l.node(tenant)]
	return busy
}

// begin returns the dirty shares of the next rounds, by node and in the order of their ledgers. Shares of nodes with a
// round under way stay dirty until it ends.
func (l *Limiter) begin() map[int32][]*share {
	l.mu.Lock()
	defer l.mu.Unlock()
	rounds := make(map[int32][]*share)
	for _, awaited := range []bool{true, false} {
		for s := range l.dirty {
			node := l.node(s.tenant)
			if _, busy := l.busy[node]; !busy && (s.next != nil) == awaited && len(rounds[node]) < roundSize {
				delete(l.dirty, s)
				rounds[node] = append(rounds[node], s)
			}
		}
	}
	for node, shares := range rounds {
		l.busy[node] = struct{}{}
		slices.SortFunc(shares, func(a, b *share) int {
			return cmp.Or(gobytes.Compare(a.tenant[:], b.tenant[:]), gobytes.Compare(a.key[:], b.key[:]))
		})
	}
	return rounds
}

// runRound asks the database for what the shares need, and wakes the waiting requests. After a failure it pauses.
func (l *Limiter) runRound(ctx context.Context, shares []*share) {
	l.mu.Lock()
	began := time.Now()
	l.rounds++
	questions, rounds := make([]*question, len(shares)), make([]*round, len(shares))
	for i, s := range shares {
		questions[i] = &question{ledgerName: s.ledgerName, limits: s.limits, demand: s.demand(began, l.rounds), wantStored: s.countsStored()}
		rounds[i], s.next = s.next, nil // requests that come from now on wait for another round
	}
	l.mu.Unlock()
	timed, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	err := l.settle(timed, l.config.Process, questions)
	l.end(shares, questions, rounds, began, err)
	if err != nil {
		pauseUntil(ctx, began.Add(failedPause))
	}
}

// end hands out the answer to a round.
func (l *Limiter) end(shares []*share, questions []*question, rounds []*round, began time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, s := range shares {
		if err == nil {
			s.accept(questions[i], began)
		}
		if s.mustReport(began) {
			l.unreported[s] = struct{}{}
		}
		if r := rounds[i]; r != nil {
			r.err, r.settled = err, questions[i].settled
			close(r.done)
		}
	}
	if err != nil && !errors.Is(err, context.Canceled) && time.Since(l.warned) >= warnEvery {
		l.warned = time.Now()
		l.config.Log.Warn("limits could not be leased; requests above what is leased are refused", "error", err)
	}
}

// demand returns what the share needs, for a round that begins now. Until the answer, the share uses no more than what
// it keeps in any case.
func (s *share) demand(now time.Time, round int64) demand {
	d := demand{Round: round}
	period := max(now.Sub(s.asked), roundsApart)
	for i := range rateCount {
		t := &s.tokens[i]
		rate := rateOf(&s.limits, i)
		if rate == nil {
			*t = tokens{}
			continue
		}
		if !now.Before(s.until) {
			t.left = 0
		}
		d.Left[i] = t.left
		// As much as was spent in the last period is enough for another one; a longer period says less.
		ahead := t.spent * 2 * min(1, float64(200*time.Millisecond)/float64(period))
		d.Tokens[i] = math.Floor(min(ahead, float64(rate.Burst)/burstShare))
		least := 0.0
		for n := range s.waiting {
			if needed := n.tokens[i]; needed > 0 {
				d.Tokens[i] += needed
				least = min(cmp.Or(least, needed), needed)
			}
		}
		if t.left = min(t.left, d.Tokens[i]); t.left < least {
			d.Least[i], t.left = least, 0
		}
		t.spent = 0
	}
	for i := range slotCount {
		q := &s.slots[i]
		d.Used[i], d.Slots[i] = q.used, q.used
		for n := range s.waiting {
			d.Slots[i] += n.slots[i]
		}
		d.Slots[i] = max(d.Slots[i], q.peak)
		q.held, q.peak = min(q.held, d.Slots[i]), q.used
	}
	return d
}

// accept notes the answer to a share's demand, for a round that has begun at began.
func (s *share) accept(q *question, began time.Time) {
	s.asked = began
	if q.wantStored {
		s.stored, s.readAt, s.added = q.stored, began, stored{}
	}
	if !q.settled {
		return
	}
	s.until = began.Add(lease)
	for i := range rateCount {
		if rateOf(&q.limits, i) == nil {
			continue
		}
		t := &s.tokens[i]
		t.left = max(q.grant.Tokens[i]-t.spent, 0)
		t.free, t.dryAt = q.grant.Free[i], time.Time{}
		if q.grant.Tokens[i] < q.demand.Tokens[i] {
			t.dryAt = began
		}
	}
	for i := range slotCount {
		slots := &s.slots[i]
		slots.held, slots.dryAt = q.grant.Slots[i], time.Time{}
		if q.grant.Slots[i] < q.demand.Slots[i] {
			slots.dryAt = began
		}
	}
}
