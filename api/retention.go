package api

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

func (s generated) ListRetention(ctx context.Context, _ openapi.ListRetentionRequestObject) (openapi.ListRetentionResponseObject, error) {
	policies, err := s.config.Retention.List(ctx, callerOf(ctx).tenant)
	if err != nil {
		return nil, err
	}
	answer := openapi.ListRetention200JSONResponse{Policies: make([]openapi.RetentionPolicy, len(policies))}
	for i, policy := range policies {
		answer.Policies[i] = retentionOf(policy)
	}
	return answer, nil
}

func (s generated) GetRetention(ctx context.Context, request openapi.GetRetentionRequestObject) (openapi.GetRetentionResponseObject, error) {
	policy, err := s.config.Retention.Get(ctx, callerOf(ctx).tenant, request.Category)
	if err != nil {
		return nil, err
	}
	return openapi.GetRetention200JSONResponse(retentionOf(policy)), nil
}

func (s generated) PutRetention(ctx context.Context, request openapi.PutRetentionRequestObject) (openapi.PutRetentionResponseObject, error) {
	policy, created, err := s.config.Retention.Put(ctx, callerOf(ctx).tenant, policyOf(request.Category, *request.Body))
	if err != nil {
		return nil, err
	}
	if created {
		return openapi.PutRetention201JSONResponse(retentionOf(policy)), nil
	}
	return openapi.PutRetention200JSONResponse(retentionOf(policy)), nil
}

func (s generated) DeleteRetention(ctx context.Context, request openapi.DeleteRetentionRequestObject) (openapi.DeleteRetentionResponseObject, error) {
	if err := s.config.Retention.Delete(ctx, callerOf(ctx).tenant, request.Category); err != nil {
		return nil, err
	}
	return openapi.DeleteRetention204Response{}, nil
}

func (s generated) RunRetention(ctx context.Context, request openapi.RunRetentionRequestObject) (openapi.RunRetentionResponseObject, error) {
	tenant := callerOf(ctx).tenant
	var body openapi.RetentionRun
	if request.Body != nil {
		body = *request.Body
	}
	if !body.DryRun {
		if body.Policy != nil {
			return nil, domain.Errorf(domain.CodeInvalidRequest, "policy", "a policy in the body requires dryRun; to apply it, store it with PUT")
		}
		policy, err := s.config.Retention.Ask(ctx, tenant, request.Category)
		if err != nil {
			return nil, err
		}
		return openapi.RunRetention202JSONResponse(retentionOf(policy)), nil
	}
	var tried *domain.RetentionPolicy
	if body.Policy != nil {
		policy := policyOf(request.Category, *body.Policy)
		tried = &policy
	}
	preview, err := s.config.Retention.Preview(ctx, tenant, request.Category, tried)
	if e, ok := errors.AsType[*domain.Error](err); ok && tried != nil && e.Code == domain.CodeInvalidRequest {
		within := *e
		within.Where = strings.TrimSuffix("policy."+e.Where, ".")
		return nil, &within
	}
	if err != nil {
		return nil, err
	}
	return openapi.RunRetention200JSONResponse{Events: preview.Events, Complete: preview.Complete, HeldBy: holdsOf(preview.HeldBy)}, nil
}

// policyOf converts a policy from a request.
func policyOf(category string, rules openapi.RetentionRules) domain.RetentionPolicy {
	policy := domain.RetentionPolicy{
		Category: category, MaxAge: time.Duration(rules.MaxAge) * time.Second, MaxCount: rules.MaxCount, Compact: rules.Compact,
	}
	if rules.Force != nil {
		policy.Force = domain.RetentionForce{Groups: rules.Force.Groups, Projections: rules.Force.Projections, Rebuilds: rules.Force.Rebuilds}
	}
	return policy
}

func retentionOf(p domain.RetentionStatus) openapi.RetentionPolicy {
	policy := openapi.RetentionPolicy{
		Category: p.Category, MaxAge: int64(p.MaxAge / time.Second), MaxCount: p.MaxCount, Compact: p.Compact,
		CreatedAt: openapi.At(p.CreatedAt), UpdatedAt: openapi.At(p.UpdatedAt), RemovedTo: p.Floor.RemovedTo, Removed: p.Floor.Removed, Spared: p.Spared,
		HeldBy: holdsOf(p.HeldBy), AskedAt: moment(p.AskedAt), LastRunAt: moment(p.LastRunAt), Error: p.LastError,
	}
	if f := p.Force; len(f.Groups)+len(f.Projections)+len(f.Rebuilds) > 0 {
		policy.Force = &openapi.RetentionForce{Groups: f.Groups, Projections: f.Projections, Rebuilds: f.Rebuilds}
	}
	return policy
}

func holdsOf(holds []domain.RetentionHold) []openapi.RetentionHold {
	answer := make([]openapi.RetentionHold, len(holds))
	for i, hold := range holds {
		answer[i] = openapi.RetentionHold{Kind: openapi.RetentionHoldKind(hold.Kind), Name: hold.Name, Position: hold.Position, Problem: hold.Problem}
	}
	return answer
}
