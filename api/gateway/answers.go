package gateway

import (
	"context"
	"strconv"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// groupAnswers are a client's answers to events of a group: ACK, NACK or MODACK.
type groupAnswers struct {
	subscription string
	attempts     []domain.Attempt
	give         func(ctx context.Context, tenant domain.TenantID, group string, attempts []domain.Attempt) ([]domain.Outcome, error)
	// done is called for each answer that took effect.
	done func(s *groupSource, attempt domain.Attempt)
}

// ack handles ACK.
func (g *connection) ack(m *clientMessage) error {
	answers := groupAnswers{subscription: m.fields.subscriptionField(), attempts: m.fields.attempts(), give: g.config.Groups.Ack}
	return g.giveAnswers(m, answers)
}

// nack handles NACK.
func (g *connection) nack(m *clientMessage) error {
	f := &m.fields
	answers := groupAnswers{subscription: f.subscriptionField(), attempts: f.attempts()}
	nack := domain.Nack{Action: domain.NackRetry, Delay: -1}
	switch action := domain.NackAction(f.text("action", 0, 40)); action {
	case "":
	case domain.NackRetry, domain.NackPark, domain.NackSkip:
		nack.Action = action
	default:
		f.fail("action", "unknown value %q; it must be one of %s, %s, %s", domain.Clip(string(action), 40), domain.NackRetry, domain.NackPark, domain.NackSkip)
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
		return g.config.Groups.Nack(ctx, tenant, group, attempts, nack)
	}
	return g.giveAnswers(m, answers)
}

// extend handles MODACK.
func (g *connection) extend(m *clientMessage) error {
	f := &m.fields
	answers := groupAnswers{subscription: f.subscriptionField(), attempts: f.attempts()}
	by := f.duration("by", domain.MinAckTimeout, domain.MaxAckTimeout, 0)
	answers.give = func(ctx context.Context, tenant domain.TenantID, group string, attempts []domain.Attempt) ([]domain.Outcome, error) {
		return g.config.Groups.Extend(ctx, tenant, group, attempts, by)
	}
	answers.done = func(s *groupSource, attempt domain.Attempt) { s.extended(attempt, by) }
	return g.giveAnswers(m, answers)
}

func (g *connection) giveAnswers(m *clientMessage, answers groupAnswers) error {
	if err := m.fields.end(); err != nil {
		return err
	}
	return g.withSubscription(m, answers.subscription, func(ctx context.Context, sub *subscription) error {
		s, ok := sub.source.(*groupSource)
		if !ok {
			return domain.Errorf(domain.CodeInvalidRequest, "subscription", "subscription %q reads the log, and its events need no answer", domain.Clip(answers.subscription, maxSubscriptionName))
		}
		if err := g.caller.AllowGroup(ctx, g.config.Groups, s.group, auth.ScopeEventsConsume); err != nil {
			return ofGroup("subscription", err)
		}
		outcomes, err := answers.give(ctx, g.caller.Tenant, s.group, answers.attempts)
		if err != nil {
			return ofGroup("subscription", err)
		}
		a := replyTo(opOK, m.id).text("subscription", answers.subscription)
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
