package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// ackEvents does not use the generated code: generic decoding is too slow for what consumers call for every event.
func (s *Server) ackEvents(c echo.Context, caller access.Caller) error {
	request := c.Request()
	body, err := checkedBody(request)
	if err != nil {
		return err
	}
	attempts, err := wire.DecodeAttempts(body)
	if err != nil {
		return err
	}
	ctx, name := request.Context(), c.Param("name")
	if err := caller.AllowOwnGroup(ctx, s.config.Groups, name, auth.ScopeEventsConsume); err != nil {
		return err
	}
	outcomes, err := s.config.Groups.Ack(ctx, caller.Tenant, name, attempts)
	if err != nil {
		return err
	}
	answer := wire.AppendAnswers(make([]byte, 0, 32+96*len(outcomes)), attempts, outcomes)
	c.Response().Header().Set("Content-Length", strconv.Itoa(len(answer)))
	return c.Blob(http.StatusOK, "application/json", answer)
}

func (s operations) AckEvent(ctx context.Context, caller access.Caller, request openapi.AckEventRequest) (*openapi.Response, error) {
	id, err := parseAt("path eventId", request.EventId, domain.ParseEventID)
	if err != nil {
		return nil, err
	}
	if err := caller.AllowOwnGroup(ctx, s.config.Groups, request.Name, auth.ScopeEventsConsume); err != nil {
		return nil, err
	}
	attempt := domain.Attempt{EventID: id, Attempt: request.Params.Attempt}
	outcomes, err := s.config.Groups.Ack(ctx, caller.Tenant, request.Name, []domain.Attempt{attempt})
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.Answer{Id: id.String(), Attempt: attempt.Attempt, Outcome: string(outcomes[0])}), nil
}

func (s operations) NackEvents(ctx context.Context, caller access.Caller, request openapi.NackEventsRequest) (*openapi.Response, error) {
	nack, err := nackOf(request.Body)
	if err != nil {
		return nil, err
	}
	answers, err := s.answers(ctx, caller, request.Name, request.Body.Ids, func(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt) ([]domain.Outcome, error) {
		return s.config.Groups.Nack(ctx, tenant, name, attempts, nack)
	})
	return openapi.OK(answers), err
}

func (s operations) ExtendEvents(ctx context.Context, caller access.Caller, request openapi.ExtendEventsRequest) (*openapi.Response, error) {
	by := wire.Seconds(request.Body.By)
	answers, err := s.answers(ctx, caller, request.Name, request.Body.Ids, func(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt) ([]domain.Outcome, error) {
		return s.config.Groups.Extend(ctx, tenant, name, attempts, by)
	})
	return openapi.OK(answers), err
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
		nack.Delay = wire.Seconds(*body.Delay)
	}
	if len(nack.Reason) > domain.MaxReasonBytes {
		return nack, domain.Errorf(domain.CodeInvalidRequest, "reason", "it has %d bytes; at most %d are kept", len(nack.Reason), domain.MaxReasonBytes)
	}
	return nack, nil
}

// answers passes a consumer's answers to its group, and returns the outcome of each.
func (s operations) answers(
	ctx context.Context, caller access.Caller, name string, ids []openapi.Attempt,
	give func(context.Context, domain.TenantID, string, []domain.Attempt) ([]domain.Outcome, error),
) (openapi.Answers, error) {
	attempts := make([]domain.Attempt, len(ids))
	for i, attempt := range ids {
		id, err := parseAt(fmt.Sprintf("ids[%d].id", i), attempt.Id, domain.ParseEventID)
		if err != nil {
			return openapi.Answers{}, err
		}
		attempts[i] = domain.Attempt{EventID: id, Attempt: attempt.Attempt}
	}
	if err := caller.AllowOwnGroup(ctx, s.config.Groups, name, auth.ScopeEventsConsume); err != nil {
		return openapi.Answers{}, err
	}
	outcomes, err := give(ctx, caller.Tenant, name, attempts)
	if err != nil {
		return openapi.Answers{}, err
	}
	answers := openapi.Answers{Results: make([]openapi.Answer, len(outcomes))}
	for i, outcome := range outcomes {
		answers.Results[i] = openapi.Answer{Id: attempts[i].EventID.String(), Attempt: attempts[i].Attempt, Outcome: string(outcome)}
	}
	return answers, nil
}
