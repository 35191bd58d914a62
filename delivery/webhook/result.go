package webhook

import (
	"context"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/domain"
)

// result is the outcome of a request, or of a duplicate, for which none was made.
type result struct {
	delivery *domain.Delivery
	began    time.Time
	answer   answer
}

// tries returns how many attempts the event has had, including this one.
func (r *result) tries() int { return r.delivery.Attempts() }

// reason returns the reason that is stored with an event that was not accepted.
func (r *result) reason() string {
	if r.answer.status == 0 {
		return plain(r.answer.err, domain.MaxReasonBytes)
	}
	return plain(fmt.Sprintf("the endpoint answered %d: %s", r.answer.status, r.answer.excerpt), domain.MaxReasonBytes)
}

// report settles a delivery by its result, with a line in the log of attempts.
func (r *round) report(res result) {
	r.c.webhooks.observe(res.answer)
	line := newAttempt(r.c.webhook.URL, &res.delivery.Event, res.tries(), res.began, res.answer)
	line.Replay = r.c.replay != nil
	switch res.answer.outcome {
	case OutcomeOK, OutcomeDuplicate:
		r.Settle(consume.Outcome{Delivery: *res.delivery, Answer: consume.Ack, Line: line})
	default:
		r.retry(res.delivery, res.answer.retryAfter, res.reason(), &line)
	}
}

// retry settles a delivery that is to be retried by the schedule. line is its line in the log of attempts, or nil.
func (r *round) retry(d *domain.Delivery, retryAfter time.Duration, reason string, line *Attempt) {
	pace, tries := &r.c.webhooks.pace, d.Attempts()
	delay := pace.retryIn(tries, retryAfter)
	if tries < pace.attempts() {
		next := time.Now().Add(delay)
		r.mu.Lock()
		r.next = consume.Sooner(r.next, next)
		r.mu.Unlock()
		if line != nil && line.Outcome != OutcomeGone { // else the event waits until the webhook is resumed
			line.NextAt = next
		}
	}
	outcome := consume.Outcome{Delivery: *d, Answer: consume.Nack, Nack: domain.Nack{Action: domain.NackRetry, Delay: delay, Reason: reason}}
	if line != nil {
		outcome.Line = *line
	}
	r.Settle(outcome)
}

// record adds lines to the log of attempts.
func (c *consumer) record(ctx context.Context, lines []any) error {
	w := c.webhooks
	attempts := make([]Attempt, len(lines))
	for i, line := range lines {
		attempts[i] = line.(Attempt)
	}
	if err := w.config.Store.AddWebhookAttempts(ctx, c.tenant, c.webhook.Name, attempts); err != nil {
		return err
	}
	if c.unswept.Add(int64(len(lines))) < sweepAfter {
		return nil
	}
	select {
	case w.sweeps <- webhookKey{c.tenant, c.webhook.Name}:
		c.unswept.Store(0)
	default:
	}
	return nil
}
