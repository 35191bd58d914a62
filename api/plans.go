package api

import (
	"context"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

func (s operations) ListPlans(ctx context.Context, caller access.Caller, request openapi.ListPlansRequest) (*openapi.Response, error) {
	page, err := namePageOf(request.Params.PageSize, request.Params.PageToken)
	if err != nil {
		return nil, err
	}
	plans, err := s.config.LimitTables.Plans(ctx, page.after, page.size+1)
	if err != nil {
		return nil, err
	}
	plans, link := cutPage(plans, page.size, func(plan domain.Plan) string { return plan.Name }, "/v1/plans", nil)
	return openapi.OK(openapi.LimitPlanList{Plans: convert(plans, planAnswer)}).With("Link", link), nil
}

func (s operations) GetPlan(ctx context.Context, caller access.Caller, request openapi.GetPlanRequest) (*openapi.Response, error) {
	plan, err := s.config.LimitTables.Plan(ctx, request.Plan)
	if err != nil {
		return nil, err
	}
	return openapi.OK(planAnswer(plan)), nil
}

func (s operations) PutPlan(ctx context.Context, caller access.Caller, request openapi.PutPlanRequest) (*openapi.Response, error) {
	limits, err := limitsOf("limits", request.Body.Limits)
	if err != nil {
		return nil, err
	}
	quotas, err := quotasOf("quotas", request.Body.Quotas)
	if err != nil {
		return nil, err
	}
	plan := domain.Plan{Name: request.Plan, Limits: limits, Quotas: quotas}
	created, err := s.config.LimitTables.PutPlan(ctx, plan)
	if err != nil {
		return nil, err
	}
	if created {
		return openapi.Created(planAnswer(plan)).With("Location", "/v1/plans/"+plan.Name), nil
	}
	return openapi.OK(planAnswer(plan)), nil
}

func (s operations) DeletePlan(ctx context.Context, caller access.Caller, request openapi.DeletePlanRequest) (*openapi.Response, error) {
	return openapi.NoContent(), s.config.LimitTables.DeletePlan(ctx, request.Plan)
}

func (s operations) GetTenantLimits(ctx context.Context, caller access.Caller, request openapi.GetTenantLimitsRequest) (*openapi.Response, error) {
	tenant, err := s.tenant(ctx, request.TenantId)
	if err != nil {
		return nil, err
	}
	return s.assignedLimits(ctx, tenant.ID)
}

func (s operations) PutTenantLimits(ctx context.Context, caller access.Caller, request openapi.PutTenantLimitsRequest) (*openapi.Response, error) {
	tenant, err := s.tenant(ctx, request.TenantId)
	if err != nil {
		return nil, err
	}
	limits, err := limitsOf("limits", request.Body.Limits)
	if err != nil {
		return nil, err
	}
	quotas, err := quotasOf("quotas", request.Body.Quotas)
	if err != nil {
		return nil, err
	}
	to := domain.TenantLimits{Plan: request.Body.Plan, Limits: limits, Quotas: quotas}
	if err := s.config.LimitTables.SetTenantLimits(ctx, tenant.ID, to); err != nil {
		return nil, err
	}
	return s.assignedLimits(ctx, tenant.ID)
}

func (s operations) GetLimits(ctx context.Context, caller access.Caller, request openapi.GetLimitsRequest) (*openapi.Response, error) {
	assigned, err := s.config.LimitTables.TenantLimits(ctx, caller.Tenant)
	if err != nil {
		return nil, err
	}
	current, err := s.currentLimits(ctx, caller.Tenant, assigned)
	return openapi.OK(current), err
}

func (s operations) assignedLimits(ctx context.Context, tenant domain.TenantID) (*openapi.Response, error) {
	assigned, err := s.config.LimitTables.TenantLimits(ctx, tenant)
	if err != nil {
		return nil, err
	}
	current, err := s.currentLimits(ctx, tenant, assigned)
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.AssignedLimits{
		Assigned: openapi.TenantLimits{Plan: assigned.Plan, Limits: new(limitsAnswer(assigned.Limits)), Quotas: new(openapi.Quotas(assigned.Quotas))},
		Current:  current,
	}), nil
}

// currentLimits reads what holds for a tenant from the database: this process may be about to learn it.
func (s operations) currentLimits(ctx context.Context, tenant domain.TenantID, assigned domain.TenantLimits) (openapi.CurrentLimits, error) {
	name := assigned.Plan
	if name == "" {
		name = domain.DefaultPlan
	}
	plan, err := s.config.LimitTables.Plan(ctx, name)
	if err != nil && !domain.IsCode(err, domain.CodeNotFound) {
		return openapi.CurrentLimits{}, err
	}
	use, err := s.config.LimitTables.Use(ctx, tenant)
	if err != nil {
		return openapi.CurrentLimits{}, err
	}
	limits, quotas := assigned.Within(plan)
	answer := openapi.CurrentLimits{Plan: plan.Name, Limits: limitsAnswer(limits)}
	for _, quota := range domain.QuotaNames {
		state := openapi.QuotaUse{Quota: string(quota), Limit: quotas.Of(quota)}
		if used, known := use[quota]; known {
			state.Used = &used
		}
		answer.Quotas = append(answer.Quotas, state)
	}
	return answer, nil
}

// limitsOf checks limits in a request; nil: there are none.
func limitsOf(where string, from *openapi.Limits) (domain.Limits, error) {
	if from == nil {
		return domain.Limits{}, nil
	}
	rate := func(from *openapi.Rate) *domain.Rate {
		if from == nil {
			return nil
		}
		return &domain.Rate{PerSecond: from.PerSecond, Burst: from.Burst}
	}
	limits := domain.Limits{
		Requests: rate(from.Requests), Events: rate(from.Events), Bytes: rate(from.Bytes),
		Connections: from.Connections, InFlight: from.RequestsInFlight,
	}
	return limits, limits.Check(where)
}

// quotasOf checks quotas in a request; nil: there are none.
func quotasOf(where string, from *openapi.Quotas) (domain.Quotas, error) {
	if from == nil {
		return domain.Quotas{}, nil
	}
	quotas := domain.Quotas(*from)
	return quotas, quotas.Check(where)
}

func limitsAnswer(from domain.Limits) openapi.Limits {
	rate := func(from *domain.Rate) *openapi.Rate {
		if from == nil {
			return nil
		}
		return &openapi.Rate{PerSecond: from.PerSecond, Burst: from.Burst}
	}
	return openapi.Limits{
		Requests: rate(from.Requests), Events: rate(from.Events), Bytes: rate(from.Bytes),
		Connections: from.Connections, RequestsInFlight: from.InFlight,
	}
}

func planAnswer(plan domain.Plan) openapi.LimitPlan {
	return openapi.LimitPlan{Name: plan.Name, Limits: limitsAnswer(plan.Limits), Quotas: openapi.Quotas(plan.Quotas)}
}
