package reactor

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// round calls a reactor for one tenant's events until nothing is due.
type round struct {
	consume.Round
	reactors *Reactors
	of       *declared
}

func newRound(r *Reactors, d *declared, source consume.Group) *round {
	calls := &round{reactors: r, of: d, Round: consume.Round{Group: source, SettleTimeout: settleTimeout}}
	calls.Room = func(unsettled int) (int, time.Time) { return d.concurrency() - unsettled, time.Time{} }
	calls.Handle = calls.handle
	return calls
}

// handle starts to call the reactor for delivered events. nextRun is set if the projection has not reached them yet.
func (r *round) handle(ctx context.Context, deliveries []domain.Delivery) (nextRun time.Time, err error) {
	documents, err := r.Documents(ctx, deliveries)
	if err != nil {
		r.SettleAs(consume.GiveBack, deliveries...)
		return nextRun, err
	}
	duplicate, err := r.of.dedupe.Duplicates(ctx, r.Tenant, r.Name, deliveries)
	if err != nil {
		r.SettleAs(consume.GiveBack, deliveries...)
		return nextRun, err
	}
	for i, d := range deliveries {
		event := Event{Event: d.Event, Attempt: d.Attempts(), MaxAttempts: d.MaxAttempts, Group: r.Name, Cursor: d.Cursor}
		if d.Event.Gap != nil {
			r.reactors.config.Log.Warn("a reactor skipped an event without data", "reactor", r.of.Name, "tenant", r.Tenant.String(),
				"position", d.Event.Position, "gap", string(d.Event.Gap.Reason))
			r.SettleAs(consume.Ack, d)
			continue
		}
		if documents != nil {
			if settleWithoutDocument(&r.Round, &d, documents[i]) {
				continue
			}
			if event.Documents = documents[i].All; len(event.Documents) == 1 {
				event.DocumentID, event.Document = event.Documents[0].ID, event.Documents[0].Document
			}
		}
		if duplicate[i] {
			r.SettleAs(consume.Ack, d)
			continue
		}
		r.Go(func() { r.Settle(r.call(ctx, d, event)) })
	}
	return r.PauseIfAhead(deliveries), nil
}

// settleWithoutDocument settles a delivery whose event belongs to no document, or has not taken effect on all of its
// documents yet. It returns false for any other delivery.
func settleWithoutDocument(r *consume.Round, d *domain.Delivery, documents projection.EventDocuments) bool {
	switch {
	case r.IsAhead(d), documents.Left:
		r.SettleAs(consume.GiveBack, *d)
	case documents.Waiting:
		r.Settle(consume.Retry(*d, documents.Reason()))
	case documents.Failed != nil:
		r.Settle(consume.Retry(*d, documents.Failed.Message))
	case len(documents.All) == 0:
		r.SettleAs(consume.Ack, *d)
	default:
		return false
	}
	return true
}

// call calls the handler for one event.
func (r *round) call(ctx context.Context, d domain.Delivery, event Event) consume.Outcome {
	began := time.Now()
	if ctx.Err() != nil || !began.Before(d.Expires) {
		return consume.Outcome{Delivery: d, Answer: consume.GiveBack}
	}
	// Do not run longer than the lease, because another call for the event may begin then.
	calling, cancel := context.WithDeadline(ctx, consume.Sooner(began.Add(r.of.timeout()), d.Expires))
	defer cancel()
	calling, span := r.reactors.config.Tracer.Continue(calling, tracing.Of(event.Metadata), trace.SpanKindConsumer, "reactor")
	err := safely(func() error { return r.of.Handler(calling, r.Tenant, event) })
	if span != nil {
		span.Set(tracing.Tenant(r.Tenant), attribute.String("manifold.reactor", r.of.Name), attribute.Int("manifold.attempt", event.Attempt))
		span.End(err)
	}
	if err != nil && ctx.Err() != nil {
		return consume.Outcome{Delivery: d, Answer: consume.GiveBack} // not the event's fault
	}
	r.reactors.config.Called(r.of.Name, err != nil, time.Since(began))
	if err != nil {
		r.reactors.config.Log.Debug("a reactor has failed", "reactor", r.of.Name, "tenant", r.Tenant.String(), "position", event.Position, "attempt", event.Attempt, "error", err)
		return consume.Retry(d, err.Error())
	}
	return consume.Outcome{Delivery: d, Answer: consume.Ack}
}

// safely turns a panic in code outside this project into an error.
func safely(call func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the reactor panicked: %v", cause)
		}
	}()
	return call()
}
