package api

import (
	"context"
	"strconv"

	"github.com/manifold-es/manifold/domain"
)

// gatewayAnswers are a client's answers to events of a group: ACK, NACK or MODACK.
type gatewayAnswers struct {
	subscription string
	attempts     []domain.Attempt
	give         func(ctx context.Context, tenant domain.TenantID, group string, attempts []domain.Attempt) ([]domain.Outcome, error)
	// done is called for each answer that took effect.
	done func(s *gatewayGroup, attempt domain.Attempt)
}

// ack handles ACK.
func (g *gatewayConnection) ack(m *gatewayMessage) error {
	answers := gatewayAnswers{subscription: m.fields.subscriptionField(), attempts: m.fields.attempts(), give: g.server.config.Groups.Ack}
	return g.giveAnswers(m, answers)
}

// nack handles NACK.
func (g *gatewayConnection) nack(m *gatewayMessage) error {
	f := &m.fields
	answers := gatewayAnswers{subscription: f.subscriptionField(), attempts: f.attempts()}
	nack := domain.Nack{Action: domain.NackRetry, Delay: -1}
	switch action := domain.NackAction(f.text("action", 0, 40)); action {
	case "":
	case domain.NackRetry, domain.NackPark, domain.NackSkip:
		nack.Action = action
	default:
		f.fail("action", "unknown value %q; it must be one of %s, %s, %s", clip(string(action), 40), domain.NackRetry, domain.NackPark, domain.NackSkip)
	}
	if f.has("delay") && nack.Action != domain.NackRetry {
		f.fail("delay", "an event that is not redelivered has no delay; leave it out")
	}
	nack.Delay = f.duration("delay", 0, domain.MaxBackoff, -1)
	nack.Reason = f.anyText("reason", domain.MaxReasonBytes)
	if len(nack.Reason) > domain.MaxReasonBytes {
		f.fail("reason", "it has %d bytes; at most %d are kept", len(nack.Reason), domain.MaxReasonBytes)
	}
	answers.give = func(ctx context.Context, tenant domain.TenantID, group string, attempts []domain.Attempt) ([]domain.Outcome, error) {
		return g.server.config.Groups.Nack(ctx, tenant, group, attempts, nack)
	}
	return g.giveAnswers(m, answers)
}

// extend handles MODACK.
func (g *gatewayConnection) extend(m *gatewayMessage) error {
	f := &m.fields
	answers := gatewayAnswers{subscription: f.subscriptionField(), attempts: f.attempts()}
	by := f.duration("by", domain.MinAckTimeout, domain.MaxAckTimeout, 0)
	answers.give = func(ctx context.Context, tenant domain.TenantID, group string, attempts []domain.Attempt) ([]domain.Outcome, error) {
		return g.server.config.Groups.Extend(ctx, tenant, group, attempts, by)
	}
	answers.done = func(s *gatewayGroup, attempt domain.Attempt) { s.extended(attempt, by) }
	return g.giveAnswers(m, answers)
}

func (g *gatewayConnection) giveAnswers(m *gatewayMessage, answers gatewayAnswers) error {
	if err := m.fields.end(); err != nil {
		return err
	}
	return g.withSubscription(m, answers.subscription, func(ctx context.Context, sub *gatewaySubscription) error {
		s, ok := sub.source.(*gatewayGroup)
		if !ok {
			return domain.Errorf(domain.CodeInvalidRequest, "subscription", "subscription %q reads the log, and its events need no answer", clip(answers.subscription, maxSubscriptionName))
		}
		if err := g.server.allowGroup(ctx, g.caller, s.group, domain.ScopeEventsConsume); err != nil {
			return ofGroup("subscription", err)
		}
		outcomes, err := answers.give(ctx, g.caller.tenant, s.group, answers.attempts)
		if err != nil {
			return ofGroup("subscription", err)
		}
		a := answerTo(opOK, m.id).text("subscription", answers.subscription)
		a.name("results")
		separator := byte('[')
		for i, outcome := range outcomes {
			attempt := answers.attempts[i]
			if outcome == domain.OutcomeDone && answers.done != nil {
				answers.done(s, attempt)
			} else {
				s.settled(attempt) // whatever the outcome, the client no longer has it
			}
			a.b = attempt.EventID.Append(append(append(a.b, separator), `{"id":"`...))
			a.b = strconv.AppendInt(append(a.b, `","attempt":`...), int64(attempt.Attempt), 10)
			a.text("outcome", string(outcome))
			a.b = append(a.b, '}')
			separator = ','
		}
		a.b = append(a.b, ']')
		g.answer(a.end())
		return nil
	})
}
