package group

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// answer is a consumer's answer to events that were delivered to it. With giveBack it returns events that have reached
// nobody.
type answer struct {
	attempts []domain.Attempt
	with     func(l *ledger, group *domain.Group, le *lease, now, begin int64) // effect on a lease; extends from begin
	action   domain.NackAction                                                 // if it is a nack
	ack      bool
	giveBack bool
	extend   bool
	by       time.Duration // of an extend; 0: the group's AckTimeout

	done     chan struct{} // closed when answered; nil: nobody waits
	outcomes []domain.Outcome
	err      error

	effect int   // number of attempts that it affected
	oldest int64 // first delivery of these attempts
	parked int

	changed bool
}

// apply applies an answer to a ledger. settled is false if an attempt in it has no lease. That is only reliable if the
// ledger is the newest.
func (a *answer) apply(l *ledger, group *domain.Group, now, begin int64) (settled bool) {
	a.outcomes = make([]domain.Outcome, len(a.attempts))
	a.effect, a.oldest, a.parked, a.changed = 0, 0, len(l.park), false
	settled = true
	for i, attempt := range a.attempts {
		le, outcome := l.find(attempt)
		if le != nil && a.extend && l.lapsed(le) {
			le, outcome = nil, domain.OutcomeStale
		}
		a.outcomes[i] = outcome
		if le == nil {
			settled = false
			continue
		}
		a.effect++
		if a.oldest == 0 || le.delivered < a.oldest {
			a.oldest = le.delivered
		}
		a.with(l, group, le, now, begin)
	}
	a.parked, a.changed = len(l.park)-a.parked, a.effect > 0
	return settled
}

// finish returns the result to the waiting caller, if there is one.
func (a *answer) finish(err error) {
	a.err = err
	if a.done != nil {
		close(a.done)
	}
}

func (a *answer) report(o *Observer, now int64) {
	switch {
	case a.effect == 0 || a.giveBack:
	case a.ack:
		if o.Acked != nil {
			o.Acked(a.effect, time.Duration(max(0, now-a.oldest))*time.Microsecond)
		}
	case a.action != "":
		if o.Nacked != nil {
			o.Nacked(a.action, a.effect)
		}
	}
}

func newAck(attempts []domain.Attempt) *answer {
	return &answer{attempts: attempts, ack: true, with: func(l *ledger, _ *domain.Group, le *lease, _, _ int64) { l.settle(le) }}
}

func newNack(attempts []domain.Attempt, nack domain.Nack) *answer {
	a := &answer{attempts: attempts, action: nack.Action}
	switch nack.Action {
	case domain.NackSkip:
		a.with = func(l *ledger, _ *domain.Group, le *lease, _, _ int64) { l.settle(le) }
	case domain.NackPark:
		a.with = func(l *ledger, _ *domain.Group, le *lease, now, _ int64) { l.parkLease(le, now, nack.Reason) }
	default:
		a.with = func(l *ledger, group *domain.Group, le *lease, now, _ int64) {
			if le.lastAttempt(group.MaxAttempts) {
				l.parkLease(le, now, nack.Reason)
				return
			}
			delay := nack.Delay
			if delay < 0 {
				delay = backOff(le.attempt-le.base, group.BackoffMin, group.BackoffMax)
			}
			l.retryAt(le, now+delay.Microseconds(), nack.Reason)
		}
	}
	return a
}

func newExtend(attempts []domain.Attempt, by time.Duration) *answer {
	return &answer{attempts: attempts, extend: true, by: by, with: func(l *ledger, group *domain.Group, le *lease, _, begin int64) {
		l.extend(le, begin+cmp.Or(by, group.AckTimeout).Microseconds())
	}}
}

func newGiveBack(attempts []domain.Attempt) *answer {
	return &answer{attempts: attempts, giveBack: true, with: func(l *ledger, _ *domain.Group, le *lease, _, _ int64) { l.giveBack(le) }}
}

func newInterrupt(attempts []domain.Attempt, alone bool) *answer {
	return &answer{attempts: attempts, giveBack: true, with: func(l *ledger, group *domain.Group, le *lease, now, _ int64) {
		if !le.due() {
			l.interrupt(le, alone, now, group.MaxAttempts, interruptedConsumer)
		}
	}}
}

// submit has a partition apply an answer, and waits for the outcomes. An answer that is already in a step takes effect
// even if ctx ends first.
func (p *partition) submit(ctx context.Context, a *answer) ([]domain.Outcome, error) {
	p.mu.Lock()
	err := p.queueAnswer(a)
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return p.awaitAnswer(ctx, a)
}

// queueAnswer has the next step apply an answer. p.mu must be held.
func (p *partition) queueAnswer(a *answer) error {
	switch {
	case p.dropped():
		return errDropped
	case len(p.answers) >= maxWaiting:
		return domain.Errorf(domain.CodeTooManyRequests, "", "the group has too many answers waiting; try again later")
	}
	a.done = make(chan struct{})
	p.answers = append(p.answers, a)
	p.start()
	return nil
}

// awaitAnswer waits for the outcomes of a queued answer.
func (p *partition) awaitAnswer(ctx context.Context, a *answer) ([]domain.Outcome, error) {
	select {
	case <-a.done:
		return a.outcomes, a.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, waiting := range p.answers {
		if waiting == a {
			p.answers = append(p.answers[:i], p.answers[i+1:]...)
			return nil, context.Cause(ctx)
		}
	}
	select {
	case <-a.done:
		return a.outcomes, a.err
	default:
		return nil, domain.Errorf(domain.CodeOutcomeUnknown, "", "the answer may have taken effect; repeating it does no harm")
	}
}

// Ack settles events. It returns outcomes in the order of attempts.
func (g *Groups) Ack(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt) ([]domain.Outcome, error) {
	return g.answer(ctx, tenant, name, attempts, newAck)
}

// Nack reports events that could not be handled. It returns outcomes in the order of attempts.
func (g *Groups) Nack(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt, nack domain.Nack) ([]domain.Outcome, error) {
	switch {
	case nack.Action == "":
		nack.Action = domain.NackRetry
	case nack.Action != domain.NackRetry && nack.Action != domain.NackPark && nack.Action != domain.NackSkip:
		return nil, domain.Errorf(domain.CodeInvalidRequest, "action", "unknown action %q; use retry, park or skip", domain.Clip(string(nack.Action), 60))
	}
	if nack.Delay > domain.MaxBackoff {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "delay", "it is %s; at most %s are allowed", nack.Delay, domain.MaxBackoff)
	}
	if len(nack.Reason) > domain.MaxReasonBytes {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "reason", "it has %d bytes; at most %d are allowed", len(nack.Reason), domain.MaxReasonBytes)
	}
	return g.answer(ctx, tenant, name, attempts, func(attempts []domain.Attempt) *answer { return newNack(attempts, nack) })
}

// Extend sets the deadlines of leases to now plus by. If by is 0, it uses the group's AckTimeout. In a group with
// partitions the outcome is stale once a lease was found to have expired, because another member may have the
// partition.
func (g *Groups) Extend(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt, by time.Duration) ([]domain.Outcome, error) {
	if by != 0 && (by < domain.MinAckTimeout || by > domain.MaxAckTimeout) {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "by", "it is %s; it must be from %s to %s", by, domain.MinAckTimeout, domain.MaxAckTimeout)
	}
	return g.answer(ctx, tenant, name, attempts, func(attempts []domain.Attempt) *answer { return newExtend(attempts, by) })
}

// answer passes a consumer's answer to the partitions of the events, and each applies its part.
func (g *Groups) answer(
	ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt, newAnswer func([]domain.Attempt) *answer,
) ([]domain.Outcome, error) {
	if len(attempts) == 0 {
		return nil, nil
	}
	for {
		gr, err := g.use(ctx, tenant, name)
		if err != nil {
			return nil, err
		}
		var outcomes []domain.Outcome
		if gr.known.Load().Partitions == 0 {
			outcomes, err = g.partition(gr, 0).submit(ctx, newAnswer(attempts))
		} else {
			outcomes, err = g.answerPartitions(ctx, gr, attempts, newAnswer)
		}
		if !errors.Is(err, errDropped) {
			return outcomes, err
		}
	}
}
