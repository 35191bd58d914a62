package api

import (
	"context"
	"fmt"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

func (s generated) AckEvents(ctx context.Context, request openapi.AckEventsRequestObject) (openapi.AckEventsResponseObject, error) {
	answers, err := s.answers(ctx, request.Name, request.Body.Ids, s.config.Groups.Ack)
	return openapi.AckEvents200JSONResponse(answers), err
}

func (s generated) AckEvent(ctx context.Context, request openapi.AckEventRequestObject) (openapi.AckEventResponseObject, error) {
	id, err := domain.ParseEventID(request.EventId)
	if err != nil {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "path eventId", "%s", err)
	}
	caller := callerOf(ctx)
	if err := s.allowOwnGroup(ctx, caller, request.Name, domain.ScopeEventsConsume); err != nil {
		return nil, err
	}
	attempt := domain.Attempt{EventID: id, Attempt: request.Params.Attempt}
	outcomes, err := s.config.Groups.Ack(ctx, caller.tenant, request.Name, []domain.Attempt{attempt})
	if err != nil {
		return nil, err
	}
	return openapi.AckEvent200JSONResponse{Id: id.String(), Attempt: attempt.Attempt, Outcome: string(outcomes[0])}, nil
}

func (s generated) NackEvents(ctx context.Context, request openapi.NackEventsRequestObject) (openapi.NackEventsResponseObject, error) {
	nack, err := nackOf(*request.Body)
	if err != nil {
		return nil, err
	}
	answers, err := s.answers(ctx, request.Name, request.Body.Ids, func(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt) ([]domain.Outcome, error) {
		return s.config.Groups.Nack(ctx, tenant, name, attempts, nack)
	})
	return openapi.NackEvents200JSONResponse(answers), err
}

func (s generated) ExtendEvents(ctx context.Context, request openapi.ExtendEventsRequestObject) (openapi.ExtendEventsResponseObject, error) {
	by := seconds(request.Body.By)
	answers, err := s.answers(ctx, request.Name, request.Body.Ids, func(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt) ([]domain.Outcome, error) {
		return s.config.Groups.Extend(ctx, tenant, name, attempts, by)
	})
	return openapi.ExtendEvents200JSONResponse(answers), err
}

// nackOf converts a nack that is already checked against the contract.
func nackOf(body openapi.Nack) (domain.Nack, error) {
	nack := domain.Nack{Action: domain.NackAction(body.Action), Delay: -1, Reason: body.Reason}
	if nack.Action == "" {
		nack.Action = domain.NackRetry
	}
	if body.Delay != nil {
		if nack.Action != domain.NackRetry {
			return nack, domain.Errorf(domain.CodeInvalidRequest, "delay", "an event that is %s is not redelivered; leave delay out", map[domain.NackAction]string{domain.NackPark: "parked", domain.NackSkip: "skipped"}[nack.Action])
		}
		nack.Delay = seconds(*body.Delay)
	}
	if len(nack.Reason) > domain.MaxReasonBytes {
		return nack, domain.Errorf(domain.CodeInvalidRequest, "reason", "it has %d bytes; at most %d are kept", len(nack.Reason), domain.MaxReasonBytes)
	}
	return nack, nil
}

// answers passes a consumer's answers to its group, and returns the outcome of each.
func (s generated) answers(
	ctx context.Context, name string, ids []openapi.Attempt,
	give func(context.Context, domain.TenantID, string, []domain.Attempt) ([]domain.Outcome, error),
) (openapi.Answers, error) {
	attempts := make([]domain.Attempt, len(ids))
	for i, attempt := range ids {
		id, err := domain.ParseEventID(attempt.Id)
		if err != nil {
			return openapi.Answers{}, domain.Errorf(domain.CodeInvalidRequest, fmt.Sprintf("ids[%d].id", i), "%s", err)
		}
		attempts[i] = domain.Attempt{EventID: id, Attempt: attempt.Attempt}
	}
	caller := callerOf(ctx)
	if err := s.allowOwnGroup(ctx, caller, name, domain.ScopeEventsConsume); err != nil {
		return openapi.Answers{}, err
	}
	outcomes, err := give(ctx, caller.tenant, name, attempts)
	if err != nil {
		return openapi.Answers{}, err
	}
	answers := openapi.Answers{Results: make([]openapi.Answer, len(outcomes))}
	for i, outcome := range outcomes {
		answers.Results[i] = openapi.Answer{Id: attempts[i].EventID.String(), Attempt: attempts[i].Attempt, Outcome: string(outcome)}
	}
	return answers, nil
}
