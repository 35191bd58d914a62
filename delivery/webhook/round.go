package webhook

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// Timing of a round.
const (
	grace         = 3 * time.Second  // for running requests when the consumer must return
	settleTimeout = 20 * time.Second // for a group's responses
)

// round is one run of a consumer, from the first event until nothing more is due. It prepares a batch of events while
// the requests of the previous batch are started, each in a separate goroutine.
type round struct {
	consume.Round
	c       *consumer
	sending context.Context // of requests; lasts a little longer than the round's
	started chan struct{}   // closed when the requests of the previous batch are started
	stopped atomic.Bool     // the endpoint accepts no more events

	mu   sync.Mutex
	next time.Time // when the first rejected event is redelivered; zero: never
}

// runRound sends what is due.
func (c *consumer) runRound(ctx context.Context) (nextRun time.Time, err error) {
	w := c.webhooks
	sending, endSending := context.WithCancel(context.WithoutCancel(ctx))
	defer endSending()
	// When the consumer must return, running requests have a moment to finish.
	defer context.AfterFunc(ctx, func() {
		late := time.AfterFunc(grace, endSending)
		context.AfterFunc(sending, func() { late.Stop() })
	})()
	r := &round{c: c, sending: sending, started: make(chan struct{}), Round: consume.Round{
		Group: consume.Group{
			Groups: w.config.Groups, Tenant: c.tenant, Name: c.group,
			Projection: c.webhook.Projection, Projections: w.config.Projections, Stalls: &w.stalls, Follow: c.follow,
		},
		Lease: w.pace.lease, Linger: w.pace.linger, EndsBusy: true, Together: true, SettleTimeout: settleTimeout,
	}}
	close(r.started)
	r.Room, r.Handle, r.Record = c.room, r.handle, c.record
	nextRun, err = r.Run(ctx)
	nextRun = consume.Sooner(nextRun, r.next)
	_, until := c.endpoint.room(time.Now())
	switch {
	case !until.IsZero():
		return until, err // nothing is received earlier, whatever is due
	case r.stopped.Load() && ctx.Err() == nil:
		return time.Now(), err
	case err == nil && c.replay != nil:
		return c.endReplay(ctx, nextRun)
	}
	return nextRun, err
}

// room returns how many events to receive. The number does not depend on how many are being sent.
func (c *consumer) room(int) (events int, until time.Time) {
	events, until = c.endpoint.room(time.Now())
	if w := c.webhooks; events > 0 && w.held.Load() > int64(w.config.Bytes) {
		events = scarceRoom
	}
	return events, until
}

// job is an event to be sent.
type job struct {
	delivery domain.Delivery
	message  message
}

// handle prepares the requests of a batch, and starts them after those of the previous batch.
func (r *round) handle(ctx context.Context, deliveries []domain.Delivery) (nextRun time.Time, err error) {
	jobs, err := r.prepare(ctx, deliveries)
	if err != nil {
		r.SettleAs(consume.GiveBack, deliveries...)
		return nextRun, err
	}
	<-r.started
	started := make(chan struct{})
	r.started = started
	r.Go(func() {
		defer close(started)
		r.start(ctx, jobs)
	})
	return nextRun, nil
}

// prepare turns deliveries into jobs, in order. It settles what is not to be sent.
func (r *round) prepare(ctx context.Context, deliveries []domain.Delivery) ([]*job, error) {
	c := r.c
	documents, err := r.Documents(ctx, deliveries)
	if err != nil {
		return nil, err
	}
	duplicate, err := c.dedupe.Duplicates(ctx, c.tenant, c.group, deliveries)
	if err != nil {
		return nil, err
	}
	jobs := make([]*job, 0, len(deliveries))
	for i := range deliveries {
		d := &deliveries[i]
		var of projection.EventDocuments
		if documents != nil {
			of = documents[i]
		}
		switch {
		case of.Left:
			r.SettleAs(consume.GiveBack, *d)
		case of.Waiting:
			r.retry(d, 0, of.Reason(), nil)
		case documents != nil && len(of.All) == 0:
			r.SettleAs(consume.Ack, *d)
		case duplicate[i]:
			r.report(result{delivery: d, began: time.Now(), answer: answer{outcome: OutcomeDuplicate}})
		default:
			j := &job{delivery: *d, message: c.webhooks.newMessage(c.webhook.Format, &d.Event, of.All)}
			j.delivery.Event.Data, j.delivery.Event.Metadata = nil, nil // the message contains them
			j.message.delivery, j.message.group = &j.delivery, c.group
			c.webhooks.held.Add(int64(len(j.message.body)))
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// start starts the requests of events, each as soon as the endpoint has room. If the breaker opens or ctx ends, the
// remaining events go back to the group.
func (r *round) start(ctx context.Context, jobs []*job) {
	for i, j := range jobs {
		s, ok := r.c.endpoint.acquire(ctx)
		if !ok {
			r.stopReceiving()
			for _, j := range jobs[i:] {
				r.c.webhooks.held.Add(-int64(len(j.message.body)))
				r.SettleAs(consume.GiveBack, j.delivery)
			}
			return
		}
		if !r.Holds(&j.delivery) {
			r.c.webhooks.held.Add(-int64(len(j.message.body)))
			s.end()
			r.SettleAs(consume.Lost, j.delivery)
			continue
		}
		r.Go(func() { r.send(s, j) })
	}
}

// send sends an event, and records what the answer says about the endpoint.
func (r *round) send(s slot, j *job) {
	c, w := r.c, r.c.webhooks
	res := result{delivery: &j.delivery, began: time.Now()}
	if event := &j.delivery.Event; c.replay == nil && res.tries() == 1 && w.config.Observer.Delayed != nil {
		w.config.Observer.Delayed(max(0, res.began.Sub(event.RecordedAt)-c.webhook.Delay))
	}
	ctx, span := w.config.Tracer.Continue(r.sending, j.message.trace, trace.SpanKindClient, "webhook")
	res.answer = w.sender.send(ctx, c.webhook.URL, c.webhook.Timeout, c.webhook.Secrets, j.message)
	c.endSpan(span, &res)
	w.held.Add(-int64(len(j.message.body)))
	if r.sending.Err() != nil && res.answer.status == 0 {
		r.SettleAs(consume.GiveBack, j.delivery) // the consumer had to return
		s.end()
		return
	}
	r.report(res)
	switch res.answer.outcome {
	case OutcomeOK:
		s.accepted(res.answer.took)
	case OutcomeGone:
		s.failed(time.Now(), 0)
		r.stopReceiving()
		if err := c.disable(r.sending, "the endpoint answered 410 Gone, so the webhook is disabled; resume it, or PUT it again"); err != nil {
			r.Fail(err)
		}
	default:
		s.failed(time.Now(), res.answer.retryAfter)
	}
}

// endSpan ends the span of a request.
func (c *consumer) endSpan(span *tracing.Span, res *result) {
	if span == nil {
		return
	}
	span.Set(tracing.Tenant(c.tenant), attribute.String("manifold.webhook", c.webhook.Name), attribute.Int("manifold.attempt", res.tries()),
		attribute.String("http.request.method", http.MethodPost), attribute.Bool("manifold.replay", c.replay != nil))
	if res.answer.status != 0 {
		span.Set(attribute.Int("http.response.status_code", res.answer.status))
	}
	if res.answer.outcome != OutcomeOK {
		span.Fail(string(res.answer.outcome))
	}
	span.End(nil)
}

// stopReceiving ends the round when its requests are done.
func (r *round) stopReceiving() {
	r.stopped.Store(true)
	r.Stop()
}
