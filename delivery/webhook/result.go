package webhook

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// result is the outcome of a delivery.
type result struct {
	delivery domain.Delivery
	began    time.Time
	answer   answer
	skipped  skipped // why no request counts; then answer is not set
}

// skipped is the reason why a delivery was not sent.
type skipped int

const (
	sent            skipped = iota // it was sent, or is a duplicate
	notOfProjection                // the event belongs to no document
	waiting                        // its document is not stored yet
	cutOff                         // the request was cancelled because the consumer had to return
)

// tries returns how many attempts the event has had, including this one.
func (r *result) tries() int { return r.delivery.Attempt - r.delivery.Base }

// reason returns the reason that is stored with an event that was not accepted.
func (r *result) reason() string {
	switch {
	case r.skipped == waiting:
		return "its document is parked, or not rebuilt yet"
	case r.answer.status == 0:
		return plain(r.answer.err, domain.MaxReasonBytes)
	}
	return plain(fmt.Sprintf("the endpoint answered %d: %s", r.answer.status, r.answer.excerpt), domain.MaxReasonBytes)
}

// report queues a result for settling. It waits if too many results are queued.
func (r *round) report(res result) { r.results <- res }

// settle settles the results of deliveries, as many at a time as are queued.
func (r *round) settle(ctx context.Context) {
	defer close(r.settled)
	for first := range r.results {
		r.settleAll(ctx, r.gather(first))
	}
}

// gather takes all results that are queued.
func (r *round) gather(first result) []result {
	all := []result{first}
	for len(all) < domain.MaxBatchSize {
		select {
		case next, ok := <-r.results:
			if !ok {
				return all
			}
			all = append(all, next)
		default:
			return all
		}
	}
	return all
}

// settleAll reports results to the group and to the log of attempts.
func (r *round) settleAll(ctx context.Context, results []result) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	c, groups := r.c, r.c.webhooks.config.Groups
	var work sync.WaitGroup
	do := func(tell func() error) {
		work.Go(func() {
			if err := tell(); err != nil {
				r.failed(err)
			}
		})
	}
	var settled, done, back []domain.Attempt
	var noted []domain.WebhookAttempt
	for i := range results {
		res := &results[i]
		attempt := attemptOf(&res.delivery)
		settled = append(settled, attempt)
		var next time.Time
		switch {
		case res.skipped == cutOff:
			back = append(back, attempt)
		case res.skipped == notOfProjection, res.skipped == sent && res.answer.outcome == domain.WebhookOK, res.skipped == sent && res.answer.outcome == domain.WebhookDuplicate:
			done = append(done, attempt)
		default:
			pace := &c.webhooks.pace
			in := pace.retryIn(res.tries(), res.answer.retryAfter)
			if res.tries() < pace.attempts() {
				next = time.Now().Add(in)
				r.again(next)
			}
			do(func() error {
				_, err := groups.Nack(ctx, c.tenant, c.group, []domain.Attempt{attempt}, domain.Nack{Action: domain.NackRetry, Delay: in, Reason: res.reason()})
				return err
			})
		}
		if res.skipped == sent {
			c.webhooks.observe(res.answer)
			line := newAttempt(c.webhook.URL, &res.delivery.Event, res.tries(), res.began, res.answer)
			line.Replay, line.NextAt = c.replay != nil, next
			if res.answer.outcome == domain.WebhookGone {
				line.NextAt = time.Time{} // the event waits until the webhook is resumed
			}
			noted = append(noted, line)
		}
	}
	if len(done) > 0 {
		do(func() error { _, err := groups.Ack(ctx, c.tenant, c.group, done); return err })
	}
	if len(back) > 0 {
		do(func() error { _, err := groups.GiveBack(ctx, c.tenant, c.group, back); return err })
	}
	if len(noted) > 0 {
		do(func() error { return c.note(ctx, noted) })
	}
	work.Wait()
	r.release(settled)
}

// note adds lines to the log of attempts.
func (c *consumer) note(ctx context.Context, lines []domain.WebhookAttempt) error {
	w := c.webhooks
	if err := w.config.Store.AddWebhookAttempts(ctx, c.tenant, c.webhook.Name, lines); err != nil {
		return err
	}
	if c.unswept.Add(int64(len(lines))) < sweepAfter {
		return nil
	}
	select {
	case w.sweeps <- named{c.tenant, c.webhook.Name}:
		c.unswept.Store(0)
	default:
	}
	return nil
}
