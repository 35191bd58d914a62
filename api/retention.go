package api

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/retention"
)

func (s operations) ListRetention(ctx context.Context, caller access.Caller, _ openapi.ListRetentionRequest) (*openapi.Response, error) {
	policies, err := s.config.Retention.List(ctx, caller.Tenant)
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.RetentionList{Policies: convert(policies, retentionOf)}), nil
}

func (s operations) GetRetention(ctx context.Context, caller access.Caller, request openapi.GetRetentionRequest) (*openapi.Response, error) {
	policy, err := s.config.Retention.Get(ctx, caller.Tenant, request.Category)
	return openapi.OK(retentionOf(policy)), err
}

// minAuditAge is the least time that an event stays in an audit log, so that nobody can soon remove the traces of an
// action.
const minAuditAge = 90 * 24 * time.Hour

func (s operations) PutRetention(ctx context.Context, caller access.Caller, request openapi.PutRetentionRequest) (*openapi.Response, error) {
	wanted := policyOf(request.Category, request.Body)
	if caller.Tenant.IsAuditLog() && (wanted.MaxAge < minAuditAge || wanted.MaxCount > 0 || wanted.Compact) {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "maxAge", "an audit log keeps events for at least %d seconds (90 days): give maxAge alone, and at least that", int64(minAuditAge/time.Second))
	}
	policy, created, err := s.config.Retention.Put(ctx, caller.Tenant, wanted)
	return openapi.CreatedIf(created, retentionOf(policy)), err
}

func (s operations) DeleteRetention(ctx context.Context, caller access.Caller, request openapi.DeleteRetentionRequest) (*openapi.Response, error) {
	return openapi.NoContent(), s.config.Retention.Delete(ctx, caller.Tenant, request.Category)
}

func (s operations) RunRetention(ctx context.Context, caller access.Caller, request openapi.RunRetentionRequest) (*openapi.Response, error) {
	body := request.Body
	if !body.DryRun {
		if body.Policy != nil {
			return nil, domain.Errorf(domain.CodeInvalidRequest, "policy", "a policy in the body requires dryRun; to apply it, store it with PUT")
		}
		policy, err := s.config.Retention.Ask(ctx, caller.Tenant, request.Category)
		if err != nil {
			return nil, err
		}
		return openapi.Accepted(retentionOf(policy)), nil
	}
	var tried *retention.Policy
	if body.Policy != nil {
		policy := policyOf(request.Category, *body.Policy)
		tried = &policy
	}
	preview, err := s.config.Retention.Preview(ctx, caller.Tenant, request.Category, tried)
	if e, ok := errors.AsType[*domain.Error](err); ok && tried != nil && e.Code == domain.CodeInvalidRequest {
		within := *e
		within.Where = strings.TrimSuffix("policy."+e.Where, ".")
		return nil, &within
	}
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.RetentionPreview{Events: preview.Events, Complete: preview.Complete, HeldBy: convert(preview.HeldBy, holdAnswer)}), nil
}

// policyOf converts a policy from a request.
func policyOf(category string, rules openapi.RetentionRules) retention.Policy {
	policy := retention.Policy{
		Category: category, MaxAge: time.Duration(rules.MaxAge) * time.Second, MaxCount: rules.MaxCount, Compact: rules.Compact,
	}
	if rules.Force != nil {
		policy.Force = retention.Force{Groups: rules.Force.Groups, Projections: rules.Force.Projections, Rebuilds: rules.Force.Rebuilds}
	}
	return policy
}

func retentionOf(p retention.Status) openapi.RetentionPolicy {
	policy := openapi.RetentionPolicy{
		Category: p.Category, MaxAge: int64(p.MaxAge / time.Second), MaxCount: p.MaxCount, Compact: p.Compact,
		CreatedAt: openapi.At(p.CreatedAt), UpdatedAt: openapi.At(p.UpdatedAt), RemovedTo: p.Floor.RemovedTo, Removed: p.Floor.Removed, Spared: p.Spared,
		HeldBy: convert(p.HeldBy, holdAnswer), AskedAt: moment(p.AskedAt), LastRunAt: moment(p.LastRunAt), Error: p.LastError,
	}
	if f := p.Force; len(f.Groups)+len(f.Projections)+len(f.Rebuilds) > 0 {
		policy.Force = &openapi.RetentionForce{Groups: f.Groups, Projections: f.Projections, Rebuilds: f.Rebuilds}
	}
	return policy
}

func holdAnswer(hold domain.RetentionHold) openapi.RetentionHold {
	return openapi.RetentionHold{Kind: openapi.RetentionHoldKind(hold.Kind), Name: hold.Name, Position: hold.Position, Problem: hold.Problem}
}
