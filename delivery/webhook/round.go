package webhook

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Timing of a round.
const (
	grace         = 3 * time.Second  // for running requests when the consumer must return
	settleTimeout = 20 * time.Second // for a group's responses
)

// round is one run of a consumer, from the first event until nothing more is due. One goroutine takes events and
// prepares them. Another starts their requests, each in a separate goroutine. A third settles the results, as many at a
// time as there are.
type round struct {
	c       *consumer
	sends   sync.WaitGroup
	results chan result
	settled chan struct{}      // closed when all results are settled
	stop    context.CancelFunc // stops taking events

	mu   sync.Mutex
	held map[domain.EventID]held // events that are leased and not settled
	fail error                   // first error that prevented settling
	next time.Time               // when the first rejected event is redelivered; zero: never
}

// resultsAhead limits how many results may wait to be settled. Above it, finished requests keep their slots.
const resultsAhead = 256

func newRound(c *consumer) *round {
	return &round{c: c, results: make(chan result, resultsAhead), settled: make(chan struct{}), held: make(map[domain.EventID]held)}
}

// batch is what take passes to run.
type batch struct {
	delivered
	none  bool
	again time.Time
	err   error
}

func (r *round) run(ctx context.Context) (again time.Time, err error) {
	taking, stop := context.WithCancel(ctx)
	defer stop()
	r.stop = stop
	sending, endSending := context.WithCancel(context.WithoutCancel(ctx))
	defer endSending()
	// When the consumer must return, running requests have a moment to finish.
	defer context.AfterFunc(ctx, func() {
		late := time.AfterFunc(grace, endSending)
		context.AfterFunc(sending, func() { late.Stop() })
	})()
	go r.settle(context.WithoutCancel(ctx))
	extending, endExtending := context.WithCancel(context.WithoutCancel(ctx))
	var extended sync.WaitGroup
	extended.Go(func() { r.extend(extending) })
	defer extended.Wait()
	defer endExtending()
	batches := make(chan batch)
	go r.take(taking, batches)
	for b := range batches {
		switch {
		case b.err != nil:
			err = b.err
		case b.none:
			again = b.again
		default:
			r.start(taking, sending, b.delivered)
		}
	}
	r.sends.Wait()
	close(r.results)
	<-r.settled
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		err = nil // cancelled by stop
	}
	if err == nil {
		err = r.fail
	}
	if _, until := r.c.endpoint.room(time.Now()); !until.IsZero() {
		again = until // nothing is taken earlier, whatever is due
	} else if taking.Err() != nil && ctx.Err() == nil {
		again = time.Now()
	} else {
		again = sooner(again, r.next)
	}
	return again, err
}

// take takes events ahead of those being sent, until there are none.
func (r *round) take(ctx context.Context, batches chan<- batch) {
	defer close(batches)
	for {
		var b batch
		b.delivered, b.none, b.again, b.err = r.c.receive(ctx, r)
		if len(b.jobs) == 0 && !b.none && b.err == nil {
			if ctx.Err() != nil {
				return
			}
			continue
		}
		batches <- b
		if b.none || b.err != nil {
			return
		}
	}
}

// start starts the requests of events, each as soon as the endpoint has room. If the breaker opens or ctx ends, the
// remaining events go back to the group.
func (r *round) start(ctx, sending context.Context, d delivered) {
	for i, j := range d.jobs {
		s, ok := r.c.endpoint.acquire(ctx)
		if !ok {
			r.stop()
			r.handBack(sending, d.jobs[i:])
			return
		}
		if !r.holds(j) {
			r.c.webhooks.held.Add(-int64(len(j.message.body)))
			s.end()
			r.release([]domain.Attempt{attemptOf(&j.delivery)})
			continue
		}
		r.sends.Go(func() { r.send(sending, s, j) })
	}
}

// send sends an event, and records what the answer says about the endpoint.
func (r *round) send(ctx context.Context, s slot, j *job) {
	c, w := r.c, r.c.webhooks
	res := result{delivery: j.delivery, began: time.Now()}
	if event := &j.delivery.Event; c.replay == nil && res.tries() == 1 && w.config.Observer.Delayed != nil {
		w.config.Observer.Delayed(max(0, res.began.Sub(event.RecordedAt)-c.webhook.Delay))
	}
	res.answer = w.sender.send(ctx, c.webhook.URL, c.webhook.Timeout, c.webhook.Secrets, j.message)
	w.held.Add(-int64(len(j.message.body)))
	if ctx.Err() != nil && res.answer.status == 0 {
		res.skipped = cutOff
		r.report(res)
		s.end()
		return
	}
	r.report(res)
	switch res.answer.outcome {
	case domain.WebhookOK:
		s.taken(res.answer.took)
	case domain.WebhookGone:
		s.failed(time.Now(), 0)
		r.gone(ctx)
	default:
		s.failed(time.Now(), res.answer.retryAfter)
	}
}

// gone disables the webhook because its endpoint wants no more events.
func (r *round) gone(ctx context.Context) {
	r.stop()
	if err := r.c.disable(ctx, "the endpoint answered 410 Gone, so the webhook is disabled; resume it, or PUT it again"); err != nil {
		r.failed(err)
	}
}

// handBack gives back events that were not sent.
func (r *round) handBack(ctx context.Context, jobs []*job) {
	for _, j := range jobs {
		r.c.webhooks.held.Add(-int64(len(j.message.body)))
	}
	r.giveBack(ctx, attemptsOf(jobs))
}

func attemptOf(d *domain.Delivery) domain.Attempt {
	return domain.Attempt{EventID: d.Event.ID, Attempt: d.Attempt}
}

func attemptsOf(jobs []*job) []domain.Attempt {
	all := make([]domain.Attempt, len(jobs))
	for i, j := range jobs {
		all[i] = attemptOf(&j.delivery)
	}
	return all
}

// giveBack gives back attempts that were not started. If it fails, their leases expire.
func (r *round) giveBack(ctx context.Context, attempts []domain.Attempt) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	r.release(attempts)
	if _, err := r.c.webhooks.config.Groups.GiveBack(ctx, r.c.tenant, r.c.group, attempts); err != nil {
		r.failed(err)
	}
}

// failed records an error that prevented settling.
func (r *round) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail == nil {
		r.fail = err
	}
}

// again records when an event is redelivered.
func (r *round) again(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = sooner(r.next, at)
}
