package consume

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/manifold-es/manifold/domain"
)

// Answer is what a round answers to its group for a delivery.
type Answer int

// Answers.
const (
	Ack      Answer = iota
	Nack            // with Outcome.Nack
	GiveBack        // the work was not started or did not count; the event is due again at once
	Lost            // nothing: the lease has expired, so the event belongs to another consumer
)

// Outcome is the outcome of the work on a delivery.
type Outcome struct {
	Delivery domain.Delivery
	Answer   Answer
	Nack     domain.Nack
	Line     any // what Round.Record stores of it; nil: nothing
}

// Retry returns the outcome of a delivery that failed, and is repeated after the group's backoff.
func Retry(d domain.Delivery, reason string) Outcome {
	return Outcome{Delivery: d, Answer: Nack, Nack: domain.Nack{Action: domain.NackRetry, Delay: -1, Reason: reason}}
}

// Settle reports outcomes, to be settled soon. It may be called concurrently.
func (r *Round) Settle(outcomes ...Outcome) {
	for _, o := range outcomes {
		r.outcomes <- o
	}
}

// SettleAs reports deliveries with the same outcome.
func (r *Round) SettleAs(answer Answer, deliveries ...domain.Delivery) {
	for i := range deliveries {
		r.outcomes <- Outcome{Delivery: deliveries[i], Answer: answer}
	}
}

// settleAll settles outcomes until there are no more, as many at a time as are ready.
func (r *Round) settleAll(ctx context.Context) {
	for first := range r.outcomes {
		ready := []Outcome{first}
	gather:
		for len(ready) < domain.MaxBatchSize {
			select {
			case next, ok := <-r.outcomes:
				if !ok {
					break gather
				}
				ready = append(ready, next)
			default:
				break gather
			}
		}
		r.settle(ctx, ready)
	}
}

// settle answers the group for events and records the lines. Events whose answer fails are redelivered when their lease
// expires.
func (r *Round) settle(ctx context.Context, outcomes []Outcome) {
	ctx, cancel := context.WithTimeout(ctx, r.SettleTimeout)
	defer cancel()
	attempts := make([]domain.Attempt, len(outcomes))
	var acks, back []domain.Attempt
	nacks := make(map[domain.Nack][]domain.Attempt)
	var lines []any
	for i := range outcomes {
		o := &outcomes[i]
		attempts[i] = domain.AttemptOf(&o.Delivery)
		switch o.Answer {
		case Ack:
			acks = append(acks, attempts[i])
		case GiveBack:
			back = append(back, attempts[i])
		case Nack:
			o.Nack.Reason = Truncate(o.Nack.Reason, domain.MaxReasonBytes)
			nacks[o.Nack] = append(nacks[o.Nack], attempts[i])
		}
		if o.Line != nil {
			lines = append(lines, o.Line)
		}
	}
	var answers sync.WaitGroup
	answer := func(send func() error) {
		answers.Go(func() {
			if err := send(); err != nil {
				r.Fail(fmt.Errorf("answer for events: %w", err))
			}
		})
	}
	if len(acks) > 0 {
		answer(func() error { _, err := r.Groups.Ack(ctx, r.Tenant, r.Name, acks); return err })
	}
	for nack, attempts := range nacks {
		answer(func() error { _, err := r.Groups.Nack(ctx, r.Tenant, r.Name, attempts, nack); return err })
	}
	if len(back) > 0 {
		answer(func() error { _, err := r.Groups.GiveBack(ctx, r.Tenant, r.Name, back); return err })
	}
	if len(lines) > 0 {
		answer(func() error { return r.Record(ctx, lines) })
	}
	answers.Wait()
	r.release(attempts)
}

// Fail records an error that Run returns when the round is over, unless there is an earlier one.
func (r *Round) Fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil {
		r.failure = err
	}
}

// Truncate shortens a text to at most that many bytes of valid UTF-8.
func Truncate(text string, bytes int) string {
	return strings.ToValidUTF8(text[:min(len(text), bytes)], "")
}
