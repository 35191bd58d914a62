package egress

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// consume publishes a tenant's events until nothing is due.
func (e *Egress) consume(ctx context.Context, tenant domain.TenantID) (nextRun time.Time, err error) {
	entered, nextRun := e.gate.enter(time.Now())
	if !entered {
		e.noteWaiting(tenant, time.Now())
		return nextRun, nil
	}
	h := holder{e: e, tenant: tenant, encoder: cloudevents.Encoder{DataSchema: e.config.DataSchema}}
	defer func() {
		if !h.published || ctx.Err() != nil {
			e.gate.release()
		}
		if ctx.Err() != nil {
			e.noteAttempt(tenant, nil) // another process continues
		} else {
			e.noteAttempt(tenant, err)
		}
	}()
	ready, err := e.prepare(ctx, tenant)
	if err != nil {
		return time.Time{}, err
	}
	if !ready {
		e.clearWaiting(tenant)
		return time.Time{}, nil
	}
	// Join only if there is something to do, because a membership costs writes.
	due, err := e.config.Groups.Due(ctx, tenant, e.group)
	if err == nil && (due.Now || !due.At.IsZero()) {
		var removed bool
		removed, err = e.removeDead(ctx, tenant)
		due.Now = due.Now || removed
	}
	if err == nil && !due.Now {
		e.clearWaiting(tenant)
		return due.At, nil
	}
	var member domain.GroupMember
	if err == nil {
		member, err = e.config.Groups.Join(ctx, tenant, e.group, e.config.Label)
	}
	if err != nil {
		if domain.IsCode(err, domain.CodeNotFound) {
			e.setReady(tenant, false) // it was removed; the next run creates it again
		}
		return time.Time{}, err
	}
	h.member = member.ID
	defer func() {
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		if leaveErr := e.config.Groups.Leave(leaving, tenant, e.group, h.member); leaveErr != nil && err == nil {
			e.config.Log.Debug("a consumer could not leave its group; its events are redelivered later", "egress", e.config.Name, "tenant", tenant.String(), "error", leaveErr)
		}
	}()
	nextRun, err = h.run(ctx)
	switch {
	case ctx.Err() != nil:
		e.clearWaiting(tenant) // another process continues
	case errors.Is(err, ErrUnreachable):
		// Do not use the dispatcher's pauses, because they apply to one tenant.
		return e.down(err), nil
	case err != nil && h.published:
		e.up()
	case err == nil && nextRun.IsZero():
		e.clearWaiting(tenant)
	}
	return nextRun, err
}

// removeDead removes the members of a tenant's group whose process has died. It reports whether there were any.
func (e *Egress) removeDead(ctx context.Context, tenant domain.TenantID) (removed bool, err error) {
	if e.config.Died == nil {
		return false, nil
	}
	members, err := e.config.Groups.Members(ctx, tenant, e.group)
	if domain.IsCode(err, domain.CodeNotFound) {
		return false, nil // Join returns the error
	}
	for i := range members {
		if err == nil && time.Since(members[i].JoinedAt) > justJoined && e.config.Died(members[i].Label) {
			removed = true
			if err = e.config.Groups.Leave(ctx, tenant, e.group, members[i].ID); domain.IsCode(err, domain.CodeNotFound) {
				err = nil // another process was faster
			}
		}
	}
	return removed, err
}

// prepare creates or updates a tenant's group. It returns false if the tenant must have none.
func (e *Egress) prepare(ctx context.Context, tenant domain.TenantID) (bool, error) {
	if e.isReady(tenant) {
		return true, nil
	}
	wanted, err := group.Complete(e.definition())
	if err != nil {
		return false, err
	}
	there, err := e.config.Groups.Get(ctx, tenant, e.group)
	switch {
	case err == nil:
		wanted.From = there.From
		if reflect.DeepEqual(there.GroupDefinition, wanted) {
			break
		}
		_, _, err = e.config.Groups.Put(ctx, tenant, e.group, wanted)
	case domain.IsCode(err, domain.CodeNotFound):
		if e.config.Active != nil {
			if active, err := e.config.Active(ctx, tenant); err != nil || !active {
				return false, err
			}
		}
		wanted.From = e.from.String()
		_, _, err = e.config.Groups.Put(ctx, tenant, e.group, wanted)
	}
	if err != nil {
		return false, err
	}
	e.setReady(tenant, true)
	return true, nil
}

// remove removes a tenant's group.
func (e *Egress) remove(ctx context.Context, tenant domain.TenantID) (time.Time, error) {
	err := e.config.Groups.Delete(ctx, tenant, e.group)
	if err == nil || domain.IsCode(err, domain.CodeNotFound) {
		e.setReady(tenant, true)
		return time.Time{}, nil
	}
	return time.Time{}, err
}

// holder is a tenant's consumer while it is a member of its group.
type holder struct {
	e         *Egress
	tenant    domain.TenantID
	member    domain.GroupMemberID
	exclusive bool // only events received by this holder are in flight, in order
	published bool // the broker was asked
	encoder   cloudevents.Encoder
}

// run publishes events until nothing is due.
func (h *holder) run(ctx context.Context) (time.Time, error) {
	e := h.e
	for {
		found, err := h.batch(ctx)
		switch {
		case err != nil:
			return time.Time{}, err
		case found:
			continue
		}
		// Wait a little longer: events come in bursts, and another holder may be about to leave. Receive only one, so
		// that waiting holders use no memory.
		deliveries, err := h.receive(ctx, group.Receive{Batch: 1, Wait: e.config.Stay})
		if err != nil {
			return time.Time{}, err
		}
		if len(deliveries) > 0 {
			if err := h.publish(ctx, deliveries); err != nil {
				return time.Time{}, err
			}
			continue
		}
		due, err := e.config.Groups.Due(ctx, h.tenant, e.group)
		if err != nil {
			return time.Time{}, err
		}
		if due.Now { // with another holder
			due.At = time.Now().Add(e.config.Stay)
		}
		return due.At, nil
	}
}

// batch publishes the next events, if there are any.
func (h *holder) batch(ctx context.Context) (found bool, err error) {
	e := h.e
	// Reserve the maximum until the actual size is known.
	if err := e.memory.Acquire(ctx, receiveBytes); err != nil {
		return false, err
	}
	held := int64(receiveBytes)
	defer func() { e.memory.Release(held) }()
	deliveries, err := h.receive(ctx, group.Receive{})
	if err != nil || len(deliveries) == 0 {
		return false, err
	}
	bytes := int64(0)
	for i := range deliveries {
		bytes += int64(deliveries[i].Event.Bytes())
	}
	if bytes < held {
		e.memory.Release(held - bytes)
		held = bytes
	}
	return true, h.publish(ctx, deliveries)
}

// receive takes events. If another holder left work half done, or events came out of order, the group seeks back to the
// first event that is not settled, and the received events are discarded.
func (h *holder) receive(ctx context.Context, wanted group.Receive) ([]domain.Delivery, error) {
	e := h.e
	wanted.Member, wanted.Together = h.member, true
	for {
		deliveries, err := e.config.Groups.Receive(ctx, h.tenant, e.group, wanted)
		if err != nil || len(deliveries) == 0 {
			return nil, err
		}
		if h.exclusive && inOrder(deliveries) {
			return deliveries, nil
		}
		status, err := e.config.Groups.Get(ctx, h.tenant, e.group)
		if err != nil {
			return nil, err
		}
		p := status.Partitions[0]
		if inOrder(deliveries) && p.InFlight == int64(len(deliveries)) && p.Retrying == 0 && p.Owner == h.member {
			h.exclusive = true
			return deliveries, nil
		}
		if _, err := e.config.Groups.Seek(ctx, h.tenant, e.group, domain.From{Position: p.Checkpoint + 1}); err != nil {
			return nil, err
		}
		h.exclusive = p.Owner == h.member
	}
}

// inOrder reports whether deliveries are in the log's order. It ignores replays of dead letters, which may come in any
// order.
func inOrder(deliveries []domain.Delivery) bool {
	last := int64(0)
	for i := range deliveries {
		if deliveries[i].Replays > 0 {
			continue
		}
		if deliveries[i].Event.Position <= last {
			return false
		}
		last = deliveries[i].Event.Position
	}
	return true
}

// publish publishes events and settles them. If an event is not acknowledged, the group goes back to the first such
// event, and the error says why.
func (h *holder) publish(ctx context.Context, deliveries []domain.Delivery) error {
	h.e.noteWaiting(h.tenant, deliveries[0].Event.RecordedAt)
	acked, rest, failure := h.send(ctx, deliveries)
	// Settle what the broker has, even if this consumer must end.
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := h.settle(settling, acked); err != nil {
		h.exclusive = false
		return errors.Join(failure, err)
	}
	if failure == nil {
		h.e.clearWaiting(h.tenant)
		return nil
	}
	h.exclusive = false
	if err := h.seekBack(settling, rest, failure); err != nil {
		return errors.Join(failure, err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return failure
}

// send publishes events. It returns the acknowledged ones, and the others with the error of one of them. Events that
// the broker will never accept become dead letters.
func (h *holder) send(ctx context.Context, pending []domain.Delivery) (acked, rest []domain.Delivery, failure error) {
	for {
		messages, spans := make([]Message, len(pending)), make([]*tracing.Span, len(pending))
		for i := range pending {
			messages[i] = h.e.message(&h.encoder, h.tenant, &pending[i].Event)
			spans[i] = h.beginSpan(ctx, &pending[i], &messages[i])
		}
		h.published = true
		limited, cancel := context.WithTimeout(ctx, publishTimeout)
		errs := h.e.config.Broker.Publish(limited, messages)
		cancel()
		refused := false
		rest, failure = nil, nil
		for i, err := range errs {
			endSpan(spans[i], err)
			if errors.Is(err, ErrRefused) {
				if err = h.refuse(ctx, pending[i], err); err == nil {
					refused = true
					continue
				}
			}
			if err == nil {
				acked = append(acked, pending[i])
				continue
			}
			rest = append(rest, pending[i])
			if failure == nil || errors.Is(failure, ErrHeldBack) {
				failure = messageError{err, messages[i].Topic}
			}
		}
		if !refused || !errors.Is(failure, ErrHeldBack) {
			return acked, rest, failure
		}
		pending = rest // publish what was held back by the refused message
	}
}

// beginSpan begins the span of a message, and gives the message its traceparent.
func (h *holder) beginSpan(ctx context.Context, d *domain.Delivery, m *Message) *tracing.Span {
	ctx, span := h.e.config.Tracer.Continue(ctx, tracing.Of(d.Event.Metadata), trace.SpanKindProducer, "publish")
	m.Traceparent = tracing.Traceparent(ctx)
	if span != nil {
		span.Set(tracing.Tenant(h.tenant), attribute.String("manifold.egress", h.e.config.Name), attribute.Int("manifold.attempt", d.Attempt-d.Base))
	}
	return span
}

// endSpan ends the span of a message with its error.
func endSpan(span *tracing.Span, err error) {
	for kind, is := range map[string]error{"refused": ErrRefused, "unreachable": ErrUnreachable, "held-back": ErrHeldBack} {
		if span != nil && errors.Is(err, is) {
			span.Fail(kind)
			err = nil
		}
	}
	span.End(err)
}

// settle acknowledges the events that the broker has.
func (h *holder) settle(ctx context.Context, acked []domain.Delivery) error {
	e := h.e
	if len(acked) == 0 {
		return nil
	}
	oldest := acked[0].Event.RecordedAt
	for i := range acked {
		if at := acked[i].Event.RecordedAt; at.Before(oldest) {
			oldest = at
		}
	}
	e.up()
	if e.config.Observer.Published != nil {
		e.config.Observer.Published(len(acked), time.Since(oldest))
	}
	outcomes, err := e.config.Groups.Ack(ctx, h.tenant, e.group, domain.AttemptsOf(acked))
	for _, outcome := range outcomes {
		h.exclusive = h.exclusive && outcome == domain.OutcomeDone // otherwise another holder has gone back
	}
	return err
}

// seekBack makes the group continue with the first event that was not published. Replays of dead letters become dead
// letters again, because seeking back to them would repeat everything that came since.
func (h *holder) seekBack(ctx context.Context, rest []domain.Delivery, failure error) error {
	e := h.e
	if e.config.Observer.Failed != nil {
		e.config.Observer.Failed(len(rest))
	}
	var replays []domain.Attempt
	back := int64(0)
	for i := range rest {
		if d := &rest[i]; d.Replays > 0 {
			replays = append(replays, domain.AttemptOf(d))
		} else if back == 0 || d.Event.Position < back {
			back = d.Event.Position
		}
	}
	if len(replays) > 0 {
		if _, err := e.config.Groups.Nack(ctx, h.tenant, e.group, replays, domain.Nack{Action: domain.NackPark, Reason: consume.Truncate(failure.Error(), domain.MaxReasonBytes)}); err != nil {
			return err
		}
	}
	if back == 0 {
		return nil
	}
	if _, err := e.config.Groups.Seek(ctx, h.tenant, e.group, domain.From{Position: back}); err != nil {
		return fmt.Errorf("go back to position %d: %w", back, err)
	}
	return nil
}

// refuse moves an event that the broker will never accept to the dead letters.
func (h *holder) refuse(ctx context.Context, d domain.Delivery, cause error) error {
	e := h.e
	e.up()
	if _, err := e.config.Groups.Nack(ctx, h.tenant, e.group, []domain.Attempt{domain.AttemptOf(&d)}, domain.Nack{Action: domain.NackPark, Reason: consume.Truncate(cause.Error(), domain.MaxReasonBytes)}); err != nil {
		return err
	}
	if e.config.Observer.Refused != nil {
		e.config.Observer.Refused(1)
	}
	return nil
}
